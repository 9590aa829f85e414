"""A trial's account, from its files: records, clocks, known delays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path

import pandas as pd

from dasklab import record
from dasklab.breakdown.align import Delay, Delays, Frames, clocks, clocks_by_packets, runs
from dasklab.breakdown.bandwidth import Belief, beliefs
from dasklab.breakdown.clocks import Clock
from dasklab.breakdown.run import CLIENT, Run
from dasklab.breakdown.summary import Summary, summarise
from dasklab.errors import LabError
from dasklab.model.cells import cell_names
from dasklab.model.files import Campaign, Measured, Result
from dasklab.model.impairments import sides
from dasklab.model.trial import Trial
from dasklab.model.variants import Layout
from dasklab.notices import warn
from dasklab.results.storage import recording, store
from dasklab.results.storage.recording import Recording


@dataclass(frozen=True)
class Explained:
    """A trial whose runs are on one clock; ``captured``: those that were captured, not the timed ones."""

    directory: Path
    captured: bool
    clocks: dict[str, Clock]
    runs: list[Run]
    waiting_s: dict[str, float]  # of each process: for a CPU, mean of the runs that count
    recorded_beliefs: pd.DataFrame  # the table of that name

    @cached_property
    def timed(self) -> list[Run]:
        """The runs that count: without warm-ups."""
        return [run for run in self.runs if not run.warmup]

    @property
    def usual(self) -> Run:
        """The run of middle length."""
        return sorted(self.timed, key=lambda run: run.makespan)[len(self.timed) // 2]

    @cached_property
    def beliefs(self) -> list[Belief]:
        """What Dask believed of each pair's link, beside what it gave."""
        delivered = store.read(Measured, self.directory) or Measured()
        return beliefs(self.recorded_beliefs, self.timed, delivered.throughput)

    @cached_property
    def summary(self) -> Summary:
        """Their account."""
        return summarise(self.timed)


def explain(directory: Path, captured: bool = False) -> Explained:
    """Account for a trial's runs.

    Raises:
        LabError: nothing was recorded of them, or a file of the trial is damaged.
    """
    store.check(directory)
    frames = record.load(directory, captured)
    trial = store.read(Trial, directory)
    delays = _delays(trial) if trial else {}
    if not captured:
        found = clocks(frames, delays)
        return Explained(directory, captured, found, runs(frames, found), _waiting(frames), frames["beliefs"])
    capture = recording.read(directory)
    if capture is None or not capture.rows("tasks"):
        raise LabError(f"{directory}: its capture shows no tasks")
    found = clocks_by_packets(frames, capture.rows("tasks"), delays)
    aligned = runs(frames, found)
    for run in aligned:
        run.see(_transfers(capture))
    return Explained(directory, captured, found, aligned, _waiting(frames), frames["beliefs"])


def _waiting(frames: Frames) -> dict[str, float]:
    metrics, runs = frames["metrics"], frames["runs"]
    of_cpu = metrics.metric == "process/waiting-for-cpu/seconds"
    counted = metrics[of_cpu & metrics.run.isin(runs[~runs.warmup.astype(bool)].run)]
    return {str(node): float(some.value.mean()) for node, some in counted.groupby("node")}


def _transfers(capture: Recording) -> Iterator[tuple[str, str, float, float, float]]:
    """Sender, receiver, and when the request, the data's first and its last byte were on the wire."""
    for row in capture.rows("transfers"):
        if row["kind"] == "get_data" and row["serve_ms"] is not None and row["wire_ms"] is not None:
            request = row["request_ns"] / 1e9
            first = request + row["serve_ms"] / 1e3
            yield row["source"], row["destination"], request, first, first + row["wire_ms"] / 1e3


def is_run(path: Path) -> bool:
    """Is this the directory of a run of an experiment, and not of one trial?"""
    return (path / Campaign.FILE).exists()


def cells(run: Path, captured: bool = False) -> dict[str, Summary]:
    """The account of each cell of an experiment's run, of all its valid trials, the baseline first.

    Empty where of the baseline nothing was recorded.
    """
    found: dict[str, list[Run]] = {}
    for directory in store.finished(run):
        valid = store.need(Result, directory).status == "ok"
        if valid and record.recorded(directory, captured):
            trial = store.need(Trial, directory)
            name = "null trial" if trial.null else trial.cell
            try:
                timed = explain(directory, captured).timed
            except LabError as error:
                warn(f"{error.message}; the trial's time is not explained")
                continue
            found.setdefault(name, []).extend(timed)
    base = cell_names(store.experiment(store.read_run(run)))[0]
    order = [base, *(name for name in found if name != base)] if base in found else []
    return {name: summarise(found[name]) for name in order}


def _delays(trial: Trial) -> Delays:
    """The least delays that were asked for from one host to another."""
    hosts = [CLIENT, "scheduler", *(f"worker-{i + 1}" for i in range(trial.workers))]
    processes = Layout.parse(trial.layout).processes if trial.layout else 1
    several = range(1, processes + 1) if processes > 1 else ()
    named = {name: host for host in hosts for name in (host, *(f"{host}-{number}" for number in several))}
    return {
        (source, target): Delay(
            _ms(trial, one, other, "egress") / 1e3, _ms(trial, other, one, "ingress") / 1e3
        )
        for (source, one), (target, other) in permutations(named.items(), 2)
        if one != other
    }


def _ms(trial: Trial, host: str, peer: str, way: str) -> float:
    link = trial.links.get(host)
    if link is None or way not in sides(link.direction) or link.peer not in (None, peer):
        return 0.0
    return max(0.0, link.delay_ms - link.jitter_ms)
