"""A trial's account, from its files: records, clocks, known delays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path

from lab import inside
from lab.account.align import Delays, clocks, runs
from lab.account.clocks import Clock
from lab.account.run import CLIENT, Run
from lab.account.summary import Summary, summarise
from lab.errors import LabError
from lab.model.cells import names
from lab.model.files import Campaign, Result
from lab.model.impairments import sides
from lab.model.trial import Trial
from lab.results import store


@dataclass(frozen=True)
class Explained:
    """A trial whose runs are on one clock; ``captured``: those that were captured, not the timed ones."""

    directory: Path
    captured: bool
    clocks: dict[str, Clock]
    runs: list[Run]

    @cached_property
    def timed(self) -> list[Run]:
        """The runs that count: without warm-ups."""
        return [run for run in self.runs if not run.warmup]

    @cached_property
    def summary(self) -> Summary:
        """Their account."""
        return summarise(self.timed)


def explain(directory: Path, captured: bool = False) -> Explained:
    """Account for a trial's runs.

    Raises:
        LabError: nothing was recorded of them.
    """
    frames = inside.load(directory, captured)
    trial = store.read(Trial, directory)
    found = clocks(frames, _delays(trial) if trial else {})
    return Explained(directory, captured, found, runs(frames, found))


def is_run(path: Path) -> bool:
    """Is this the directory of a run of an experiment, and not of one trial?"""
    return (path / Campaign.FILE).exists()


def cells(run: Path, captured: bool = False) -> dict[str, Summary]:
    """The account of each cell of an experiment's run, the baseline first, of all its valid trials.

    Raises:
        LabError: of the baseline nothing was recorded.
    """
    found: dict[str, list[Run]] = {}
    for directory in store.finished(run):
        valid = store.need(Result, directory).status == "ok"
        if valid and inside.recorded(directory, captured):
            trial = store.need(Trial, directory)
            name = "null trial" if trial.null else trial.cell
            found.setdefault(name, []).extend(explain(directory, captured).timed)
    base = names(store.experiment(store.read_run(run)))[0]
    if base not in found:
        raise LabError(f"{run}: of its baseline, {base}, nothing was recorded inside Dask")
    return {name: summarise(found[name]) for name in (base, *(other for other in found if other != base))}


def _delays(trial: Trial) -> Delays:
    """The least delay that was asked for from one host to another, in seconds."""
    hosts = [CLIENT, "scheduler", *(f"worker-{i + 1}" for i in range(trial.workers))]
    return {pair: delay for pair in permutations(hosts, 2) if (delay := _one_way_ms(trial, *pair) / 1e3)}


def _one_way_ms(trial: Trial, source: str, destination: str) -> float:
    ends = ((source, destination, "egress"), (destination, source, "ingress"))
    return sum(
        max(0.0, link.delay_ms - link.jitter_ms)
        for host, peer, way in ends
        if (link := trial.links.get(host)) and way in sides(link.direction) and link.peer in (None, peer)
    )
