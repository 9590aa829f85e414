"""The files of a run: judged, gathered into one tidy table, loaded, compared.

``results/<experiment>/<time>/`` holds ``experiment.json``, one directory per trial and ``samples.parquet``,
the table of all samples. ``load`` makes that table anew from the trials' files. Its columns:

=============  ======================================================================================
experiment     name of the experiment; ``run``: the run's time, its directory's name
trial          name of the trial's directory; ``cell`` and ``block``: where it belongs
<factor>       one column per factor, the level's value
baseline       the trial is the baseline; ``null``: it is the null trial, the baseline's exact copy
status         ok, invalid (not as asked), unsupported, failed
metric         compute_s, us_per_task, transfer_mb, rtt_ms, throughput_mbit, retransmits, udp_mbit,
               udp_lost_pct, frames, node_busy_pct (CPU of the hypervisor during the runs);
               loss during the runs as netem did it and as TCP saw it: drop_events (of super-packets
               where offloads are on), resent_pct (segments sent again, of all that were sent)
value          the sample, in the unit that the metric's name ends with
sample         its number within the trial and metric; ``warmup``: it is one, and leaves the statistics
phase          before or after the runs, for probes; ``src``, ``dst``: between which hosts
tested         a probe passes a link that this trial changes, or the way to one peer where it changes that
               alone; in a trial that changes none, one that another trial changes; true of all else
start          seconds since the epoch, for runs
=============  ======================================================================================
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, Field

from lab.errors import LabError
from lab.model.experiment import Experiment
from lab.results.validity import baseline, clocks, judge
from lab.running.trials import PING_INTERVAL_S, Trial, cells

SCHEMA = 1
SAMPLE: dict[str, Any] = {
    "metric": "",
    "value": 0.0,
    "sample": 0,
    "warmup": False,
    "phase": "",
    "src": "",
    "dst": "",
    "start": None,
}
TCP = {"throughput_mbit": "mbit", "retransmits": "retransmits"}  # metric -> key in delivered.json
UDP = {"udp_mbit": "mbit", "udp_lost_pct": "lost_pct"}
Document = dict[str, Any]


class Result(BaseModel):
    """The verdict on one trial: result.json. Statistics are computed from the table, never stored."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    experiment: str
    trial: str
    cell: str
    status: Literal["ok", "invalid", "unsupported", "failed"]
    reasons: list[str]
    wall_s: float
    measuring_s: float


def load(path: str | Path) -> pd.DataFrame:
    """The tidy table of a run's directory, or of every run below a directory, or of a table file.

    ``frame.attrs["factors"]`` names the factors' columns.

    Raises:
        LabError: there are no results at ``path``.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    if path.suffix == ".csv":
        return pd.read_csv(path)
    frames = [table(run) for run in find(path)]
    joined = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    joined.attrs["factors"] = list(dict.fromkeys(f for frame in frames for f in frame.attrs["factors"]))
    return joined


def find(path: Path) -> list[Path]:
    """The runs at or below ``path``, oldest first."""
    runs = sorted((p.parent for p in path.glob("**/experiment.json")), key=lambda run: run.name)
    if not runs:
        raise LabError(f"{path}: no results there", "dasklab results lists the runs")
    return runs


def table(run: Path) -> pd.DataFrame:
    """One row per sample of a run, sorted by block and by cell as the experiment's file lists them."""
    experiment = Experiment.model_validate(read_run(run)["experiment"])
    factors, order = list(experiment.factors), cells(experiment)
    directories = {directory: read_trial(directory) for directory in finished(run)}
    changed = {ends for trial in directories.values() for ends in _changed(trial)}
    rows: list[Document] = []
    for directory, trial in sorted(directories.items(), key=lambda d: (d[1].block, order.index(d[1].cell))):
        status = read_result(directory).status
        common: Document = {
            "experiment": trial.experiment,
            "run": run.name,
            "trial": trial.trial,
            "cell": trial.cell,
        }
        common |= {"block": trial.block, "baseline": trial.baseline, "null": trial.null, "status": status}
        relevant = _changed(trial) or changed
        for sample in samples(directory):
            row = common | trial.factors | SAMPLE | sample
            ends = {row["src"], row["dst"]} - {""}
            rows.append(row | {"tested": not ends or not relevant or any(part <= ends for part in relevant)})
    columns = ["experiment", "run", "trial", "cell", "block", *factors, "baseline", "null", "status", *SAMPLE]
    columns.append("tested")
    frame = pd.DataFrame(rows, columns=columns).astype({"start": float, "value": float})
    for factor in factors:
        if len({type(level) for level in frame[factor]} - {int, float}) > 0:
            frame[factor] = frame[factor].astype(str)
    frame.attrs["factors"] = factors
    return frame


def _changed(trial: Trial) -> set[frozenset[str]]:
    """What a trial changes: a host's whole link, or, with the peer's name, its way to that peer alone."""
    links = {frozenset({host, link.peer or host}) for host, link in trial.links.items()}
    return links | {frozenset({host}) for host in trial.nics}


def write_table(run: Path) -> Path:
    """Write the run's table to samples.parquet beside its trials."""
    path = run / "samples.parquet"
    table(run).to_parquet(path, index=False)
    return path


def samples(directory: Path) -> Iterator[Document]:
    """Every measured sample of one trial."""
    timings = read_json(directory / "timings.json")
    common: Document
    for index, run in enumerate(timings.get("samples", [])):
        common = {"sample": index, "warmup": run["warmup"], "start": run["start"]}
        yield common | {"metric": "compute_s", "value": run["duration_s"]}
        if timings.get("tasks"):
            yield common | {"metric": "us_per_task", "value": 1e6 * run["duration_s"] / timings["tasks"]}
        if "transfer_bytes" in run:
            yield common | {"metric": "transfer_mb", "value": run["transfer_bytes"] / 1e6}
    delivered = read_json(directory / "delivered.json")
    for probe in delivered.get("rtt", []):
        where: Document = {key: probe.get(key, "") for key in ("phase", "src", "dst")}
        for index, value in enumerate(probe["samples_ms"]):
            yield where | {"metric": "rtt_ms", "sample": index, "value": value}
    for index, probe in enumerate(delivered.get("throughput", [])):
        where = {key: probe.get(key, "") for key in ("phase", "src", "dst")}
        for metric, key in (UDP if probe.get("proto") == "udp" else TCP).items():
            yield where | {"metric": metric, "sample": index, "value": probe[key]}
    yield from _loss(directory)
    capture = read_json(directory / "capture.json")
    if "frames" in capture:
        yield {"metric": "frames", "value": capture["frames"]}
    if cpu := read_json(directory / "hosts.json").get("hypervisor", {}).get("cpu"):
        yield {"metric": "node_busy_pct", "value": 100 * (1 - cpu["idle_s"] / sum(cpu.values()))}


def _loss(directory: Path) -> Iterator[Document]:
    """Drop events of all netem queues and segments sent again by all hosts, between the looks at the runs."""
    links = read_json(directory / "configured.json").get("hosts", {}).values()
    looks = [[_drops(link.get(when)) for link in links] for when in ("qdisc_before", "qdisc_after")]
    if links:
        yield {"metric": "drop_events", "value": sum(looks[1]) - sum(looks[0])}
    tcp = [host["tcp"] for host in read_json(directory / "hosts.json").get("hosts", {}).values()]
    if sent := sum(counters["OutSegs"] for counters in tcp):
        resent = sum(counters["RetransSegs"] for counters in tcp)
        yield {"metric": "resent_pct", "value": 100 * resent / sent}


def _drops(queues: list[Document] | None) -> int:
    return sum(queue.get("drops", 0) for queue in queues or [] if queue.get("kind") == "netem")


def assess(run: Path) -> dict[str, Result]:
    """Judge every finished trial of a run against its baselines and write each result.json."""
    trials = {directory: read_trial(directory) for directory in _with(run, "attempt.json")}
    allowed = Experiment.model_validate(read_run(run)["experiment"]).tolerances
    bases = [d for d, trial in trials.items() if (trial.baseline or trial.null) and not _failure(d, trial)]
    base = baseline(trials[bases[0]], [read_json(d / "delivered.json") for d in bases]) if bases else None
    results = {}
    for directory, trial in trials.items():
        status, reasons = _failure(directory, trial) or ("ok", [])
        if status == "ok" and base is not None:
            documents = [read_json(directory / name) for name in ("configured.json", "delivered.json")]
            reasons = judge(trial, documents[0], documents[1], base, allowed)
            reasons += clocks(read_json(directory / "hosts.json"))
        results[trial.trial] = _write_result(
            directory, trial, "invalid" if status == "ok" and reasons else status, reasons
        )
    return results


def attempts(run: Path) -> list[Document]:
    """What the driver saw of each finished trial."""
    return [read_json(directory / "attempt.json") for directory in finished(run)]


def measuring_s(directory: Path) -> float:
    """Seconds of a trial that were spent on measuring: runs, warm-ups, pings and throughput probes."""
    timings, delivered = (read_json(directory / name) for name in ("timings.json", "delivered.json"))
    runs = sum(run["duration_s"] for run in timings.get("samples", []))
    pings: Counter[tuple[str, str]] = (
        Counter()
    )  # hosts ping at the same time, each one target after the other
    for probe in delivered.get("rtt", []):
        pings[probe["phase"], probe["src"]] += len(probe["samples_ms"])
    phases = {phase: max(n for (p, _), n in pings.items() if p == phase) for phase, _ in pings}
    throughput = sum(probe["seconds"] for probe in delivered.get("throughput", []))
    return float(runs + PING_INTERVAL_S * sum(phases.values()) + throughput)


def finished(run: Path) -> list[Path]:
    """The directories of the trials that were attempted to the end and judged, in the order they ran."""
    return _with(run, "result.json")


def _with(run: Path, file: str) -> list[Path]:
    return [run / name for name in read_run(run)["order"] if (run / name / file).exists()]


def read_run(run: Path) -> Document:
    """A run's experiment.json."""
    document = read_json(run / "experiment.json")
    if not document:
        raise LabError(f"{run}: this is not a run's directory, it has no experiment.json")
    return document


def read_trial(directory: Path) -> Trial:
    """A trial's trial.json."""
    return Trial.model_validate(read_json(directory / "trial.json"))


def read_result(directory: Path) -> Result:
    """A trial's result.json."""
    return Result.model_validate(read_json(directory / "result.json"))


def read_json(path: Path) -> Document:
    """A JSON file of this schema, empty if it does not exist.

    Raises:
        LabError: the file is not JSON or of another version of the schema.
    """
    if not path.exists():
        return {}
    try:
        document: Document = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise LabError(f"{path}: not JSON: {error}") from error
    if document.get("schema", SCHEMA) != SCHEMA:
        raise LabError(f"{path}: schema {document['schema']}, this version of the lab reads {SCHEMA}")
    return document


def write_json(path: Path, document: Document) -> None:
    """Write at once or not at all, so that a killed driver leaves no half file."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(document, indent=1) + "\n")
    draft.replace(path)


def _failure(directory: Path, trial: Trial) -> tuple[Literal["unsupported", "failed"], list[str]] | None:
    """Why a trial has nothing to judge."""
    attempt, timings = (read_json(directory / name) for name in ("attempt.json", "timings.json"))
    if attempt["exit_status"]:
        told = read_json(directory / "failed.json")
        reasons = told.get("reasons") or [
            attempt.get("error") or f"ended with status {attempt['exit_status']}"
        ]
        return ("unsupported" if told.get("status") == "unsupported" else "failed"), reasons
    if not timings:
        return "failed", ["the workload left no timings.json"]
    check = timings["check"]
    if not check["ok"]:
        return "failed", [
            f"wrong answer: {check['got']}, expected {check['expected']} +- {check['tolerance']}"
        ]
    if timings["cluster"]["workers"] != trial.workers:
        return "failed", [f"{timings['cluster']['workers']} workers computed, {trial.workers} were asked"]
    return None


def _write_result(directory: Path, trial: Trial, status: Any, reasons: list[str]) -> Result:
    attempt = read_json(directory / "attempt.json")
    result = Result(
        experiment=trial.experiment,
        trial=trial.trial,
        cell=trial.cell,
        status=status,
        reasons=reasons,
        wall_s=attempt["wall_s"],
        measuring_s=attempt["measuring_s"],
    )
    write_json(directory / "result.json", result.model_dump(by_alias=True))
    return result
