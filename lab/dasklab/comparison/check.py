"""Decide whether records are slower than older records of the same work: ``dasklab check``.

Theory of operation
-------------------
The two sides are compared by the lengths of their records, as logarithms: the ratio of the geometric means,
with Welch's 95 % interval, because the two sides may vary differently. The limit divides the answers::

    limit                      |
    not slower   |--------|    |
    slower                     |   |------|
    cannot decide      |-------|---|

More records make the interval narrower. A single record on one of the sides gives no interval: nothing says
how much two records of the same work differ, so the verdict is "cannot decide". So it is for records that
were cut off, that are given twice, or that hold different work: ``comparable``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field, PlainSerializer
from scipy.special import stdtrit

from dasklab.breakdown.answers.summary import Difference, summarise
from dasklab.breakdown.show.explain import Explained
from dasklab.breakdown.show.wording import main_cause
from dasklab.comparison.obstacles import obstacle
from dasklab.model.forms.json_output import CONFIG, Number
from dasklab.results.statistics.interval import Interval
from dasklab.terminal import counted

CONFIDENCE = 0.95
LEAST_RECORDS = 2  # on each side, for an interval
MAX_RECORDS = 200  # on each side; nobody records more


class Verdict(Enum):
    """The answers, with the exit status of the command."""

    NOT_SLOWER = 0
    SLOWER = 1
    CANNOT_DECIDE = 4


@dataclass(frozen=True)
class Comparison:
    """The verdict on two sides, which `dasklab check` prints; with an obstacle there are no figures."""

    __pydantic_config__: ClassVar[ConfigDict] = CONFIG

    verdict: Annotated[
        Verdict,
        PlainSerializer(
            lambda verdict: verdict.name.lower(), Literal["not_slower", "slower", "cannot_decide"]
        ),
    ]
    change_pct: Annotated[
        Number,
        Field(
            description="How much longer the new records are: ratio of geometric means; "
            "null with an obstacle."
        ),
    ]
    low_pct: Annotated[Number, Field(description="Lower end of the 95 % interval; null without an interval.")]
    high_pct: Annotated[
        Number, Field(description="Upper end of the 95 % interval; null without an interval.")
    ]
    limit_pct: Annotated[float, Field(description="A change above this counts as slower.")]
    old_s: Annotated[list[float], Field(description="Length of each old record in seconds.")]
    new_s: Annotated[list[float], Field(description="Length of each new record in seconds.")]
    cause: Annotated[str, Field(description="What grew most on the critical path; empty if nothing did.")]
    obstacle: Annotated[str, Field(description="Why the records cannot be compared; empty if they can.")] = ""

    def __str__(self) -> str:
        """Return the verdict as one line."""
        title = self.verdict.name.replace("_", " ").lower()
        if self.obstacle:
            return f"{title}: {self.obstacle}"
        between = "" if math.isnan(self.low_pct) else f" ({self.low_pct:+.1f} to {self.high_pct:+.1f} %)"
        records = f"{counted(len(self.new_s), 'record')} against {len(self.old_s)}"
        line = f"{title}: {self.change_pct:+.1f} %{between}, {records}, limit {self.limit_pct:g} %"
        line = f"{line}; mainly {self.cause}" if self.cause else line
        return f"{line}; {self._remedy()}" if self.verdict is Verdict.CANNOT_DECIDE else line

    def _remedy(self) -> str:
        """Return what would decide it."""
        if math.isnan(self.low_pct):
            return f"record at least {LEAST_RECORDS} runs on each side"
        number = records_needed(self.new_s, self.old_s, self.limit_pct)
        if number is None:
            return f"the change is too close to the limit for {MAX_RECORDS} records on each side to decide"
        return f"about {number} records on each side would decide"


def compare(
    new: Sequence[Explained],
    old: Sequence[Explained],
    limit_pct: float,
    if_work_differs: str | None = "compare records of the same work",
) -> Comparison:
    """Compare records of the same work, some new and some old; at least one of each.

    Args:
        limit_pct: a larger change counts as slower.
        if_work_differs: what to do about records of different work; None compares them all the same.
    """
    if reason := obstacle(new, old, if_work_differs):
        nothing = math.nan
        return Comparison(Verdict.CANNOT_DECIDE, nothing, nothing, nothing, limit_pct, [], [], "", reason)
    new_s, old_s = ([record.summary.makespan_s for record in side] for side in (new, old))
    change = change_pct(new_s, old_s)
    before, after = (summarise([repeat for record in side for repeat in record.timed]) for side in (old, new))
    cause = main_cause(Difference(before, after))
    decided = verdict(change, limit_pct)
    return Comparison(decided, change.value, change.low, change.high, limit_pct, old_s, new_s, cause)


def change_pct(new_s: Sequence[float], old_s: Sequence[float]) -> Interval:
    """Return by how much the new lengths are larger, with Welch's interval unless a length is single."""
    sides = [np.log(np.array(lengths, float)) for lengths in (new_s, old_s)]
    change = float(sides[0].mean() - sides[1].mean())
    if min(map(len, sides)) < LEAST_RECORDS:
        return Interval(_percent(change))
    variances = [float(side.var(ddof=1)) / len(side) for side in sides]
    error = math.sqrt(sum(variances))
    weights = sum(v**2 / (len(side) - 1) for v, side in zip(variances, sides, strict=True))
    reach = error * float(stdtrit(sum(variances) ** 2 / weights, (1 + CONFIDENCE) / 2)) if weights else 0.0
    return Interval(_percent(change), _percent(change - reach), _percent(change + reach))


def verdict(change: Interval, limit_pct: float) -> Verdict:
    """Return on which side of the limit the whole interval lies, if it lies on one."""
    if change.low > limit_pct:
        return Verdict.SLOWER
    return Verdict.NOT_SLOWER if change.high <= limit_pct else Verdict.CANNOT_DECIDE


def records_needed(new_s: Sequence[float], old_s: Sequence[float], limit_pct: float) -> int | None:
    """Return how many records on each side would decide, if they vary as these do; None above MAX_RECORDS."""
    sides = [np.log(np.array(lengths, float)) for lengths in (new_s, old_s)]
    distance = abs(float(sides[0].mean() - sides[1].mean()) - math.log1p(limit_pct / 100))
    variance = sum(float(side.var(ddof=1)) for side in sides)
    for number in range(max(map(len, sides)) + 1, MAX_RECORDS + 1):
        reach = float(stdtrit(2 * number - 2, (1 + CONFIDENCE) / 2)) * math.sqrt(variance / number)
        if reach < distance:
            return number
    return None


def _percent(change: float) -> float:
    return 100 * math.expm1(change)
