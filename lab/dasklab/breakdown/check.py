"""Decide whether records are slower than older records of the same work: ``dasklab check``.

Theory of operation
-------------------
The two sides are compared by the lengths of their records, as logarithms: the ratio of the geometric means,
with Welch's 95 % interval, because the two sides may vary differently. The limit divides the answers::

    limit                      |
    not slower   |--------|    |
    slower                     |   |------|
    undecided          |-------|---|

More records make the interval narrower. A single record on one of the sides gives no interval: nothing says
how much two runs of the same work differ, so the verdict is "undecided".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np
from pydantic import BaseModel, Field
from scipy.special import stdtrit

from dasklab.breakdown.explain import Explained
from dasklab.breakdown.summary import Difference, summarise
from dasklab.breakdown.wording import main_cause
from dasklab.results.statistics.interval import Interval
from dasklab.terminal import counted

CONFIDENCE = 0.95
LEAST_RECORDS = 2  # on each side, for an interval


class Verdict(Enum):
    """The answers, with the exit status of the command."""

    NOT_SLOWER = 0
    SLOWER = 1
    UNDECIDED = 2


@dataclass(frozen=True)
class Comparison:
    """Two sides compared.

    Attributes:
        change_pct: how much longer the new records are, with its interval.
        limit_pct: a larger change counts as slower.
        old_s, new_s: lengths of the records.
        cause: what grew most on the critical path; empty if nothing did.
    """

    verdict: Verdict
    change_pct: Interval
    limit_pct: float
    old_s: Sequence[float]
    new_s: Sequence[float]
    cause: str

    def __str__(self) -> str:
        """Return the verdict as one line."""
        change = self.change_pct
        between = "" if math.isnan(change.low) else f" ({change.low:+.1f} to {change.high:+.1f} %)"
        records = f"{counted(len(self.new_s), 'record')} against {len(self.old_s)}"
        title = self.verdict.name.replace("_", " ").lower()
        line = f"{title}: {change.value:+.1f} %{between}, {records}, limit {self.limit_pct:g} %"
        if self.verdict is Verdict.UNDECIDED:
            return f"{line}; record {'more runs' if len(between) else 'at least two runs on each side'}"
        return f"{line}; mainly {self.cause}" if self.cause else line


class ComparisonDocument(BaseModel, extra="forbid"):
    """The verdict that `dasklab check` prints as JSON."""

    verdict: Literal["not_slower", "slower", "undecided"]
    change_pct: float = Field(description="How much longer the new records are: ratio of geometric means.")
    low_pct: float | None = Field(description="Lower end of the 95 % interval; null without an interval.")
    high_pct: float | None = Field(description="Upper end of the 95 % interval; null without an interval.")
    limit_pct: float = Field(description="A change above this counts as slower.")
    old_s: list[float] = Field(description="Length of each old record in seconds.")
    new_s: list[float] = Field(description="Length of each new record in seconds.")
    cause: str = Field(description="What grew most on the critical path; empty if nothing did.")

    @classmethod
    def of(cls, comparison: Comparison) -> ComparisonDocument:
        low, high = (
            None if math.isnan(end) else end
            for end in (comparison.change_pct.low, comparison.change_pct.high)
        )
        fields = {
            "verdict": comparison.verdict.name.lower(),
            "change_pct": comparison.change_pct.value,
            "cause": comparison.cause,
        }
        ends = {"low_pct": low, "high_pct": high, "limit_pct": comparison.limit_pct}
        return cls.model_validate(
            fields | ends | {"old_s": list(comparison.old_s), "new_s": list(comparison.new_s)}
        )


def compare(new: Sequence[Explained], old: Sequence[Explained], limit_pct: float) -> Comparison:
    """Compare records of the same work, some new and some old; at least one of each."""
    new_s, old_s = ([record.summary.makespan_s for record in side] for side in (new, old))
    change = change_pct(new_s, old_s)
    before, after = (summarise([run for record in side for run in record.timed]) for side in (old, new))
    cause = main_cause(Difference(before, after))
    return Comparison(verdict(change, limit_pct), change, limit_pct, old_s, new_s, cause)


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
    return Verdict.NOT_SLOWER if change.high <= limit_pct else Verdict.UNDECIDED


def _percent(change: float) -> float:
    return 100 * math.expm1(change)
