"""The one object that compares two sides of the same work: two runs, two records, or sets of records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from dasklab.breakdown.answers.summary import indistinguishable
from dasklab.breakdown.model.causes import Bottleneck
from dasklab.comparison.difference import Difference
from dasklab.model.forms.json_output import Number
from dasklab.results.statistics.interval import Interval

TIME = "compute_s"
"""The metric whose causes are compared."""


@dataclass(frozen=True)
class CellChange:
    """One cell's metric in two runs, and new over old.

    ``is_shown`` means that chance explains the difference in fewer than one of 20 tables as long as this one.
    """

    metric: str
    cell: str
    old: Number
    new: Number
    ratio: Annotated[Interval, Field(description="New over old.")]
    is_shown: bool


def shown(change: CellChange) -> bool | None:
    """Return whether a change is larger than chance explains; None if nothing says what chance does."""
    return None if math.isnan(change.ratio.low) else change.is_shown


@dataclass(frozen=True)
class CauseChange:
    """How many seconds of a bottleneck the new side has more on the critical path.

    ``is_shown`` means that chance explains it in fewer than one of 20 comparisons with as many causes.
    """

    bottleneck: Bottleneck
    place: str
    seconds: Interval
    is_shown: bool


@dataclass(frozen=True)
class Causes:
    """Why two sides differ: the mean breakdown of each, and the change of each bottleneck, the largest first.

    Attributes:
        is_time_shown: whether the times differ by more than chance explains; if not, no cause is shown.
            None if nothing says what chance does, because a side has a single trial or record.
    """

    difference: Difference
    changes: list[CauseChange]
    is_time_shown: bool | None

    @property
    def has_intervals(self) -> bool:
        """Whether both sides were recorded several times, so that causes have intervals."""
        return any(not math.isnan(change.seconds.low) for change in self.changes)

    def uncertain_s(self, change: CauseChange) -> float:
        """By how much the seconds of a change may be wrong; without an interval, as far as one side shows."""
        if not math.isnan(change.seconds.low):
            return change.seconds.value - change.seconds.low
        sides = (self.difference.old, self.difference.new)
        return sum(side.uncertainty_s.get(change.bottleneck, 0.0) for side in sides)

    def equals(self, changes: Sequence[CauseChange]) -> int:
        """Return how many of some changes, the largest first, may be the largest."""
        return indistinguishable([(change.seconds.value, self.uncertain_s(change)) for change in changes])

    @property
    def shown(self) -> list[CauseChange]:
        """The changes that are larger than chance explains."""
        return [change for change in self.changes if change.is_shown]


@dataclass(frozen=True)
class Comparison:
    """What differs between an old and a new side.

    Attributes:
        changes: of each metric and cell that both sides have. Records have one, of their length; its cell has
            an empty name.
        causes: for each cell whose time was recorded on both sides.
        unlike: why two runs are hardly comparable.
        undisturbed: the change of records' lengths without the time in which they waited for a CPU; None of
            runs.
        more_cpu_wait: how much more of the time in which their threads could have computed the new records
            waited for a CPU: -1 to 1.
    """

    changes: list[CellChange] = field(default_factory=list)
    causes: Mapping[str, Causes] = field(default_factory=dict)
    unlike: Sequence[str] = ()
    undisturbed: CellChange | None = None
    more_cpu_wait: float = 0.0

    def of_cell(self, metric: str, cell: str) -> CellChange | None:
        """Return the change of one cell; None if a side lacks it."""
        return next((row for row in self.changes if (row.metric, row.cell) == (metric, cell)), None)
