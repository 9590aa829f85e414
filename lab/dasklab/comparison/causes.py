"""Causes that differ significantly, tested like total times.

Each trial, or record, has one value for each bottleneck: its seconds on the critical path. An estimate with a
standard error is made of these values as it is made of the times (``inference`` for trials in blocks,
``sessions`` for records), so a bottleneck that takes long in one trial of many is not shown. The p-values are
corrected for the number of bottlenecks (Holm).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dasklab.breakdown.answers.summary import Summary, without_places
from dasklab.breakdown.model.causes import (
    ACTORS,
    COMPUTING,
    CPU,
    DISK_USE,
    GIL,
    IDLE,
    LINK,
    LOCKS,
    LOST_RESULTS,
    NESTED_TASKS,
    OUTSIDE,
    PLACEMENT,
    UNKNOWN_WAIT,
    Bottleneck,
)
from dasklab.comparison.comparison import CauseChange, Causes
from dasklab.comparison.difference import Difference
from dasklab.results.statistics.inference import ALPHA, Estimate, holm
from dasklab.results.statistics.interval import Interval

ON_A_CPU = (COMPUTING, LOST_RESULTS, ACTORS)
ELSEWHERE = (OUTSIDE, LOCKS, NESTED_TASKS, GIL, LINK, PLACEMENT, DISK_USE, UNKNOWN_WAIT)
"""What lasts as long on a busy machine, because it does not need a CPU of its own."""
LEAST_SHARE = 0.2
"""So much of a length remains at least, however long it waited for a CPU.

A short record may seem to wait all the time. With hardly anything left, it alone would keep the interval of
all records from deciding, even if the others are ten times as long.
"""
LEAST_S = 0.0005
"""A bottleneck that changes by less is left out."""


@dataclass(frozen=True)
class PathSeconds:
    """The critical path of one trial or record: the mean over its timed repeats, in seconds.

    Attributes:
        cpu_wait_share: how much of the time in which threads could have computed they waited for a CPU. Of
            all threads, because the few tasks of a path wait by chance.
    """

    length_s: float
    by_bottleneck: Mapping[Bottleneck, float]
    cpu_wait_share: float = 0.0

    @classmethod
    def of(cls, summary: Summary) -> PathSeconds:
        waiting_s, computing_s = (
            sum(s for cause, s in summary.by_cause.items() if cause.bottleneck in bottlenecks)
            for bottlenecks in ((CPU,), ON_A_CPU)
        )
        share = waiting_s / (waiting_s + computing_s) if waiting_s else 0.0
        return cls(summary.makespan_s, without_places(summary.bottlenecks), share)

    @property
    def undisturbed_s(self) -> float:
        """The length without the wait for a CPU.

        Kernels say how long the threads of tasks waited. The scheduler, the client and event loops waited as
        much, as a share; what waits for no CPU of this machine is as long as it was.
        """
        elsewhere_s = sum(self.by_bottleneck.get(bottleneck, 0.0) for bottleneck in ELSEWHERE)
        without_wait_s = elsewhere_s + (self.length_s - elsewhere_s) * (1 - self.cpu_wait_share)
        return max(without_wait_s, LEAST_SHARE * self.length_s)

    def seconds(self, bottleneck: Bottleneck) -> float:
        """Return the seconds of a bottleneck; those of the link and of placement are divided later."""
        if bottleneck in (LINK, PLACEMENT):
            return self.by_bottleneck.get(LINK, 0.0) + self.by_bottleneck.get(PLACEMENT, 0.0)
        return self.by_bottleneck.get(bottleneck, 0.0)


def causes(
    difference: Difference, estimate: Callable[[Bottleneck], Estimate], is_time_shown: bool | None
) -> Causes:
    """Return the change of each bottleneck.

    Args:
        difference: of the mean breakdowns.
        estimate: returns the difference of ``PathSeconds.seconds`` of a bottleneck.
        is_time_shown: whether the times differ by more than chance explains; else no cause is shown.
    """
    ranked = [row for row in difference.ranked() if abs(row[2]) > LEAST_S and row[0] is not IDLE]
    estimates = [replace(estimate(bottleneck), value=seconds) for bottleneck, _, seconds in ranked]
    corrected = holm([row.p_value for row in estimates])
    changes = [
        CauseChange(bottleneck, place, _interval(row), is_time_shown is True and p_value < ALPHA)
        for (bottleneck, place, _), row, p_value in zip(ranked, estimates, corrected, strict=True)
    ]
    return Causes(difference, changes, is_time_shown)


def _interval(estimate: Estimate) -> Interval:
    return Interval(estimate.value, estimate.value - estimate.margin, estimate.value + estimate.margin)
