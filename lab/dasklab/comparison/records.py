"""Compare records, or trials, of the same work: their lengths, and what explains the difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from dasklab.breakdown.answers.summary import Summary, summarise
from dasklab.breakdown.model.causes import Bottleneck
from dasklab.breakdown.show.explain import Explained
from dasklab.comparison.causes import PathSeconds, causes
from dasklab.comparison.comparison import TIME, CellChange, Comparison, shown
from dasklab.comparison.difference import Difference
from dasklab.comparison.sessions import SESSION_SPREAD, SessionValue, difference, mean
from dasklab.results.statistics.inference import ALPHA, Estimate
from dasklab.results.statistics.interval import Interval
from dasklab.results.statistics.scale import exp

WHOLE = ""
"""The name of the only cell of records."""


def compare_records(old: Sequence[Explained], new: Sequence[Explained]) -> Comparison:
    """Compare two sets of records, at least one on each side, whatever speaks against it (``obstacles``)."""
    sides = _Sides(_paths(old), _paths(new))
    length = sides.change(lambda path: path.length_s)
    undisturbed = sides.change(lambda path: path.undisturbed_s)
    means = Difference(_summary(old), _summary(new))
    of_all = causes(means, sides.estimate, shown(length))
    return Comparison([length], {WHOLE: of_all}, (), undisturbed, sides.more_cpu_wait)


def session_of(record: Explained) -> str:
    """Return what the records of one session have in common: the client that recorded them."""
    return record.document.client if record.document else str(record.trial)


@dataclass(frozen=True)
class _Sides:
    """The critical paths of both sides, each with the session that it is from."""

    old: list[tuple[PathSeconds, str]]
    new: list[tuple[PathSeconds, str]]

    def change(self, length: Callable[[PathSeconds], float]) -> CellChange:
        """Return how a length differs. The two sides are compared by its logarithm."""
        old, new = ([SessionValue(math.log(length(path)), name) for path, name in side] for side in self)
        estimate, before = difference(new, old, SESSION_SPREAD), mean(old)
        ends = (estimate.value, estimate.value - estimate.margin, estimate.value + estimate.margin)
        ratio, is_shown = Interval(*map(exp, ends)), estimate.p_value < ALPHA
        return CellChange(TIME, WHOLE, exp(before), exp(before + estimate.value), ratio, is_shown)

    @property
    def more_cpu_wait(self) -> float:
        """How much more of the time in which threads could have computed they waited for a CPU: -1 to 1."""
        old, new = (fmean(path.cpu_wait_share for path, _ in side) for side in self)
        return new - old

    def estimate(self, bottleneck: Bottleneck) -> Estimate:
        """Return how the seconds of a bottleneck differ."""
        old, new = ([SessionValue(path.seconds(bottleneck), name) for path, name in side] for side in self)
        largest = max(abs(mean(old)), abs(mean(new)))
        return difference(new, old, SESSION_SPREAD * largest)

    def __iter__(self) -> Iterator[list[tuple[PathSeconds, str]]]:
        return iter((self.old, self.new))


def _summary(side: Sequence[Explained]) -> Summary:
    if len(side) == 1:
        return side[0].summary
    return summarise([repeat for record in side for repeat in record.timed])


def _paths(side: Sequence[Explained]) -> list[tuple[PathSeconds, str]]:
    return [(PathSeconds.of(record.summary), session_of(record)) for record in side]
