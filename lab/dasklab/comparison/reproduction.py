"""A cell that was run twice: each trial's verdict, digests and mean, and whether chance explains the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, computed_field
from typing_extensions import Self

from dasklab.comparison.comparison import CellChange
from dasklab.comparison.runs import compare_runs
from dasklab.model.files import AGAIN, Result
from dasklab.model.forms.json_output import CONFIG
from dasklab.model.settings.metric import METRICS
from dasklab.results.run import Run, Trial
from dasklab.results.statistics.identity import simulated_from
from dasklab.results.statistics.interval import format_interval


@dataclass(frozen=True)
class ReproducedRow:
    """One property of one trial, in both runs."""

    trial: str
    what: str
    old: str
    new: str

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know that this keeps the property
    @property
    def same(self) -> bool:
        """Whether both texts are equal."""
        return self.old == self.new

    @property
    def columns(self) -> tuple[str, ...]:
        """The row of a table."""
        return self.trial, self.what, self.old, self.new, "same" if self.same else "different"


@dataclass(frozen=True)
class Reproduced:
    """The output of `dasklab reproduce`."""

    __pydantic_config__: ClassVar[ConfigDict] = CONFIG

    old: str
    new: str
    cell: str
    rows: list[ReproducedRow]
    verdicts: Annotated[list[str], Field(description="Sentences: is the difference larger than chance?")]

    @classmethod
    def of(cls, old: Run, new: Run, cell: str) -> Self:
        """Compare a cell of two runs."""
        return cls(str(old), str(new), cell, rows(old, new, cell), list(verdicts(old, new, cell)))


def rows(old: Run, new: Run, cell: str) -> list[ReproducedRow]:
    """Return the properties of each trial of a cell that both runs have, block by block."""
    before, after = _trials(old, cell), _trials(new, cell)
    return [row for key in before if key in after for row in _rows(before[key], after[key])]


def _trials(run: Run, cell: str) -> dict[tuple[int, bool], Trial]:
    """Map the block, and whether it is the null trial, to each trial of a cell."""
    return {
        (trial.requested.block, trial.requested.null): trial
        for trial in run.trials
        if trial.requested.cell == cell
    }


def _rows(old: Trial, new: Trial) -> Iterator[ReproducedRow]:
    """Yield a trial's faults, its verdict, its mean, and the digest of each seed."""
    faults = [" and ".join(map(str, trial.requested.faults)) for trial in (old, new)]
    if any(faults):
        yield ReproducedRow(old.name, "fault", *faults)
    yield ReproducedRow(old.name, "verdict", *(_verdict(trial.result) for trial in (old, new)))
    yield ReproducedRow(old.name, "mean", *(_mean(trial.durations_s) for trial in (old, new)))
    digests = [_digests(trial) for trial in (old, new)]
    for seed in digests[0]:
        yield ReproducedRow(old.name, f"seed {seed}", digests[0][seed], digests[1].get(seed, "none"))


def _verdict(result: Result) -> str:
    return "; ".join([result.status, *(why for why in result.reasons if not why.startswith(AGAIN))])


def _mean(durations_s: list[float]) -> str:
    return f"{fmean(durations_s):.6g} s" if durations_s else "none"


def _digests(trial: Trial) -> dict[int, str]:
    """Map each seed of a simulated trial to its digest."""
    outcomes = trial.simulation.outcomes if trial.simulation else ()
    return {outcome.seed: outcome.digest for outcome in outcomes}


def verdicts(old: Run, new: Run, cell: str) -> Iterator[str]:
    """Yield a line for each metric: whether chance explains the difference.

    A simulated run may be compared with the measured run that it simulates.

    Raises:
        LabError: the runs are not comparable: other versions, another machine.
    """
    anyway = simulated_from(old) != simulated_from(new)
    for change in compare_runs(old, new, anyway).changes:
        if change.cell == cell:
            number = METRICS[change.metric].format
            yield (
                f"{change.metric}: {number(change.old)} and {number(change.new)}, "
                f"new / old {format_interval(change.ratio)}: {chance(change)}"
            )


def chance(change: CellChange) -> str:
    """Whether chance explains a difference. One block on each side is too few, unless they are equal."""
    if math.isnan(change.ratio.low):
        return "the same" if change.old == change.new else "too few blocks to know what chance does"
    return "more than chance does" if change.is_shown else "within what chance does"
