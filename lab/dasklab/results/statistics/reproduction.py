"""A cell that was run twice: each trial's verdict, digests and mean, and whether chance explains the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from dasklab.model.files import AGAIN, Result, Simulation, Timings
from dasklab.model.trial import Trial
from dasklab.results.statistics import compare
from dasklab.results.statistics.measures import interval, number
from dasklab.results.storage import store


@dataclass(frozen=True)
class Row:
    """One thing of one trial, in both runs."""

    trial: str
    what: str
    old: str
    new: str

    @property
    def same(self) -> bool:
        """Is it equal, to the letter?"""
        return self.old == self.new

    @property
    def cells(self) -> tuple[str, ...]:
        """As a table has it."""
        return self.trial, self.what, self.old, self.new, "same" if self.same else "other"


def rows(old: Path, new: Path, cell: str) -> list[Row]:
    """Each trial of a cell that both runs have, by its block."""
    before, after = _trials(old, cell), _trials(new, cell)
    return [row for key in before if key in after for row in _rows(before[key], after[key])]


def _trials(run: Path, cell: str) -> dict[tuple[int, bool], Path]:
    """The directories of a cell's trials by their block, the null trial's apart."""
    asked = {directory: store.need(Trial, directory) for directory in store.finished(run)}
    return {(trial.block, trial.null): path for path, trial in asked.items() if trial.cell == cell}


def _rows(old: Path, new: Path) -> Iterator[Row]:
    """A trial's faults, its verdict, its mean, and of each seed the digest."""
    faults = [" and ".join(map(str, store.need(Trial, path).faults)) for path in (old, new)]
    if any(faults):
        yield Row(old.name, "fault", *faults)
    results = [store.need(Result, path) for path in (old, new)]
    yield Row(old.name, "verdict", *(_verdict(result) for result in results))
    yield Row(old.name, "mean", *(_mean(path) for path in (old, new)))
    digests = [_digests(path) for path in (old, new)]
    for seed in digests[0]:
        yield Row(old.name, f"seed {seed}", digests[0][seed], digests[1].get(seed, "none"))


def _verdict(result: Result) -> str:
    return "; ".join([result.status, *(why for why in result.reasons if not why.startswith(AGAIN))])


def _mean(directory: Path) -> str:
    timings = store.read(Timings, directory)
    timed = [sample.duration_s for sample in timings.timed] if timings else []
    return f"{fmean(timed):.6g} s" if timed else "none"


def _digests(directory: Path) -> dict[int, str]:
    """By seed, of a simulated trial."""
    found = store.read(Simulation, directory)
    return {outcome.seed: outcome.digest for outcome in found.outcomes} if found else {}


def verdicts(old: Path, new: Path, cell: str) -> Iterator[str]:
    """Of each metric: may chance have made the difference? One that is simulated is compared all the same.

    Raises:
        LabError: what was measured twice was not the same: versions, machine.
    """
    anyway = compare.simulated_from(old) != compare.simulated_from(new)
    for change in compare.compare(old, new, anyway):
        if change.cell == cell:
            yield (
                f"{change.metric}: {number(change.old)} and {number(change.new)}, "
                f"new / old {interval(change.ratio)}: {chance(change)}"
            )


def chance(change: compare.Change) -> str:
    """May chance have made it? One block each tells nothing of that, unless they are equal."""
    if math.isnan(change.ratio.low):
        return "the same" if change.old == change.new else "too few blocks to tell what chance does"
    return "more than chance does" if change.shown else "within what chance does"
