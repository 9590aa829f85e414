"""One tidy table of all samples: a row per sample, its columns those of ``dasklab.model.columns``.

``samples`` says where each metric of ``dasklab.model.metric`` comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.model import cells
from dasklab.model.columns import COLUMNS
from dasklab.model.files import CaptureReport, Configured, Hosts, Measured, Probe, Queue, Result, Timings
from dasklab.model.impairments import QUEUES
from dasklab.model.trial import Setup, Trial
from dasklab.notices import warn
from dasklab.results.storage import store

Row = dict[str, Any]
FILES: dict[str, tuple[Callable[[Path], pd.DataFrame], Callable[[pd.DataFrame, Path], Any]]] = {
    ".csv": (pd.read_csv, partial(pd.DataFrame.to_csv, index=False)),
    ".parquet": (pd.read_parquet, partial(pd.DataFrame.to_parquet, index=False)),
}
SAMPLE: Row = {
    "metric": "",
    "value": 0.0,
    "sample": 0,
    "warmup": False,
    "phase": "",
    "src": "",
    "dst": "",
    "node": "",
    "start": None,
}


def load(path: str | Path) -> pd.DataFrame:
    """The tidy table of a run's directory, or of every run below a directory, or of a table file.

    ``frame.attrs["factors"]`` names the factors' columns.

    Raises:
        LabError: there are no results at ``path``, or measured and simulated ones.
    """
    path = Path(path)
    if path.suffix in FILES:
        return read_table(path)
    runs = store.find(path)
    if len({store.read_run(run).setup.simulated is None for run in runs}) > 1:
        raise LabError(
            f"{path}: there are measured and simulated runs, which are never one table",
            "name a folder with runs of one kind: simulated ones are kept in `simulated`",
        )
    frames = [frame for _, frame in store.of_each(runs, table)]
    joined = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    joined.attrs["factors"] = list(dict.fromkeys(f for frame in frames for f in frame.attrs["factors"]))
    return joined


def write(run: Path) -> Path:
    """Write the run's table to samples.parquet beside its trials."""
    path = run / "samples.parquet"
    write_table(table(run), path)
    return path


def read_table(path: Path) -> pd.DataFrame:
    """Read a table file, .csv or .parquet.

    Raises:
        LabError: the file is missing, damaged, or holds no such table.
    """
    try:
        frame = FILES[path.suffix][0](path)
    except FileNotFoundError:
        raise LabError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # pandas' and pyarrow's own errors are ValueErrors
        raise LabError(f"{path}: it cannot be read as a table: {str(error).splitlines()[0]}") from error
    if missing := [name for name in COLUMNS if name not in frame]:
        raise LabError(f"{path}: this is no table of samples, it has no column {missing[0]}")
    return frame


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table to a file, .csv or .parquet, at once or not at all.

    Raises:
        LabError: the name ends otherwise.
        OSError: the file cannot be written.
    """
    if path.suffix not in FILES:
        raise LabError(f"{path}: the table is written as {' or '.join(FILES)}")
    with atomic.replaced(path) as draft:
        FILES[path.suffix][1](frame, draft)


def table(run: Path) -> pd.DataFrame:
    """The table of one run, sorted by block and by cell as the experiment's file lists them."""
    begun = store.read_run(run)
    experiment = store.experiment(begun)
    order = cells.cell_names(experiment)
    trials = dict(_trials(run, order))
    changed = {ends for trial in trials.values() for ends in _changed(trial, begun.setup)}
    rows: list[Row] = []
    for directory, trial in sorted(trials.items(), key=lambda d: (d[1].block, order.index(d[1].cell))):
        foretold = begun.setup.simulated
        kind = {
            "simulated": foretold is not None,
            "prediction_error": foretold.prediction_error if foretold else 0.0,
        }
        common = _place(run, directory, trial) | kind
        relevant = _changed(trial, begun.setup) or changed
        nodes = _nodes(store.read(Configured, directory) or Configured())
        told = ((row, {"node": _where(row, nodes)}) for row in _rows(directory, common))
        rows += [row | node | {"tested": _tested(row, relevant)} for row, node in told]
    factors = list(experiment.factors)
    names = list(COLUMNS)
    split = names.index("baseline")
    columns = [*names[:split], *factors, *names[split:]]
    frame = pd.DataFrame(rows, columns=columns).astype({"start": float, "value": float})
    for factor in factors:
        if {type(level) for level in frame[factor]} - {int, float}:
            frame[factor] = frame[factor].astype(str)
    frame.attrs["factors"] = factors
    return frame


def _trials(run: Path, names: list[str]) -> Iterator[tuple[Path, Trial]]:
    """The undamaged trials of a run that are of its experiment."""
    for directory in store.finished(run):
        trial = store.need(Trial, directory)
        if trial.cell in names:
            yield directory, trial
        else:
            warn(
                f"{directory / Trial.FILE}: the experiment has no cell {trial.cell!r}; the trial is left out"
            )


def _place(run: Path, directory: Path, trial: Trial) -> Row:
    """What all rows of a trial have in common."""
    where: Row = {"experiment": trial.experiment, "run": run.name, "trial": trial.trial, "cell": trial.cell}
    kind = {"block": trial.block, "baseline": trial.baseline, "null": trial.null}
    what = {"workload": trial.workload.name, "status": store.need(Result, directory).status}
    return where | kind | what | trial.factors


def _rows(directory: Path, common: Row) -> Iterator[Row]:
    for sample in samples(directory):
        yield common | SAMPLE | sample


def _changed(trial: Trial, setup: Setup) -> set[frozenset[str]]:
    """What a trial changes: a host's whole link, or, with the peer's name, its way to that peer alone."""
    links = {frozenset({host, link.peer or host}) for host, link in trial.links.items()}
    return links | {frozenset({host}) for host, card in trial.nics.items() if card != setup.nics[host]}


def _tested(row: Row, relevant: Iterable[frozenset[str]]) -> bool:
    ends = {row["src"], row["dst"]} - {""}
    return not ends or not relevant or any(part <= ends for part in relevant)


def _nodes(configured: Configured) -> dict[str, str]:
    """Host -> the node that it is on, where there are nodes."""
    return {name: host.node for name, host in configured.hosts.items() if host.node}


def _where(row: Row, nodes: Mapping[str, str]) -> str:
    """The nodes of a probe's two ends, or of all hosts: one word where it stays on one."""
    ends = [end for end in (row["src"], row["dst"]) if end]
    return " ".join(sorted({nodes[host] for host in ends or nodes if host in nodes}))


def samples(directory: Path) -> Iterator[Row]:
    """Every measured sample of one trial."""
    yield from _timed(store.read(Timings, directory))
    yield from _delivered(store.read(Measured, directory) or Measured())
    machines = store.read(Hosts, directory)
    yield from _loss(store.read(Configured, directory) or Configured(), machines)
    capture = store.read(CaptureReport, directory)
    if capture and capture.frames is not None:
        yield {"metric": "frames", "value": capture.frames}
    if machines and (idle := machines.hypervisor.share_pct("idle_s")) is not None:
        yield {"metric": "node_busy_pct", "value": 100 - idle}
    if machines and (stolen := machines.hypervisor.share_pct("steal_s")) is not None:
        yield {"metric": "node_steal_pct", "value": stolen}
    if machines and (foreign := machines.hypervisor.foreign_pct) is not None:
        yield {"metric": "node_foreign_pct", "value": foreign}
    for what, share in machines.hypervisor.pressure_pct.items() if machines else ():
        yield {"metric": f"node_{what}_pressure_pct", "value": share}


def _timed(timings: Timings | None) -> Iterator[Row]:
    for index, run in enumerate(timings.samples if timings else ()):
        common: Row = {"sample": index, "warmup": run.warmup, "start": run.start}
        yield common | {"metric": "compute_s", "value": run.duration_s}
        if run.warmup and index == 0:
            yield common | {"metric": "cold_s", "value": run.duration_s, "warmup": False}
        if timings and timings.tasks:
            yield common | {"metric": "us_per_task", "value": 1e6 * run.duration_s / timings.tasks}
        if timings and timings.tasks and run.scheduler_cpu_s is not None:
            value = 1e6 * run.scheduler_cpu_s / timings.tasks
            yield common | {"metric": "scheduler_us_per_task", "value": value}
        if run.transfer_bytes is not None:
            yield common | {"metric": "transfer_mb", "value": run.transfer_bytes / 1e6}


def _delivered(delivered: Measured) -> Iterator[Row]:
    for probe in delivered.rtt:
        for index, value in enumerate(probe.samples_ms):
            yield _ends(probe) | {"metric": "rtt_ms", "sample": index, "value": value}
    for index, measured in enumerate(delivered.throughput):
        tcp = {"throughput_mbit": measured.mbit, "retransmits": measured.retransmits}
        udp = {"udp_mbit": measured.mbit, "udp_lost_pct": measured.lost_pct}
        for metric, found in (udp if measured.proto == "udp" else tcp).items():
            yield _ends(measured) | {"metric": metric, "sample": index, "value": found}
        for ping, value in enumerate(measured.rtt_ms):
            yield _ends(measured) | {"metric": "rtt_loaded_ms", "sample": ping, "value": value}


def _ends(probe: Probe) -> Row:
    return {"phase": probe.phase, "src": probe.src, "dst": probe.dst}


def _loss(configured: Configured, machines: Hosts | None) -> Iterator[Row]:
    """Drop events of impaired links' queues and segments sent again by all hosts, between two looks.

    Drop events are of super-packets where offloads are on; segments are counted one by one.
    """
    links = configured.hosts.values()
    if links:
        before, after = (
            sum(_drops(queues) for queues in looks)
            for looks in ([link.qdisc_before for link in links], [link.qdisc_after for link in links])
        )
        yield {"metric": "drop_events", "value": after - before}
    hosts = machines.hosts.values() if machines else ()
    counters = [host.tcp for host in hosts if {"OutSegs", "RetransSegs"} <= set(host.tcp)]
    if len(counters) == len(hosts) and (sent := sum(counted["OutSegs"] for counted in counters)):
        resent = sum(counted["RetransSegs"] for counted in counters)
        yield {"metric": "retransmitted_pct", "value": 100 * resent / sent}


def _drops(queues: Iterable[Queue]) -> int:
    return sum(queue.drops for queue in queues if queue.kind in QUEUES)
