"""Decide whether records are slower than older records of the same work: ``dasklab check``.

Theory of operation
-------------------
The limit divides the answers, by the 95 % interval of the change (``records``, ``sessions``)::

    limit                      |
    not slower   |--------|    |
    slower                     |   |------|
    cannot decide      |-------|---|

A machine that is busy with other things makes any work longer, so lengths have a second interval: without the
time in which they waited for a CPU. It holds on a busy machine; on a quiet one it is the wider of the two.
Either of them decides, if the other one does not contradict it:

- *slower*: one interval is above the limit, the other's best value too, and without the wait the work is
  longer by more than chance explains;
- *not slower*: one interval is below the limit, the other's best value too.

The whole lengths are no contradiction where the old records waited longer, and cannot say "not slower" then.
Otherwise a wait explains the difference, or hides one: "cannot decide: the machine was busier". A busy
machine computes more slowly, too, because threads share cores and caches: ``SLOWDOWN`` is allowed for that.

A single record on one of the sides gives no interval. Records that were cut off, that are given twice or that
hold different work decide nothing (``obstacles``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, PlainSerializer

from dasklab.breakdown.show.explain import Explained
from dasklab.comparison import wording
from dasklab.comparison.comparison import TIME, CellChange, Comparison
from dasklab.comparison.obstacles import obstacle
from dasklab.comparison.records import WHOLE, compare_records, session_of
from dasklab.model.forms.json_output import CONFIG, Number
from dasklab.results.statistics.interval import Interval
from dasklab.terminal import counted

SLOWDOWN = 0.5
"""How much longer computing takes, in logarithms, where threads wait all the time instead of never."""
SAME_WAIT = 0.05
"""Shares of waiting that differ by less are taken for the same."""
MAX_SESSIONS = 100  # on each side; nobody records more


class Verdict(Enum):
    """The answers, with the exit status of the command."""

    NOT_SLOWER = 0
    SLOWER = 1
    CANNOT_DECIDE = 4


@dataclass(frozen=True)
class CheckedRecords:
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
    without_cpu_wait: Annotated[
        Interval | None,
        Field(description="The change in per cent without the time in which they waited for a CPU."),
    ] = None
    busier: Annotated[
        Literal["", "new", "old"],
        Field(description="The side whose longer wait for a CPU is the reason why nothing is decided."),
    ] = ""
    sessions_needed: Annotated[
        int | None, Field(description="How many sessions on each side would decide; null if unknown.")
    ] = None

    def __str__(self) -> str:
        """Return the verdict as one line."""
        title = self.verdict.name.replace("_", " ").lower()
        if self.obstacle:
            return f"{title}: {self.obstacle}"
        records = f"{counted(len(self.new_s), 'record')} against {len(self.old_s)}"
        change = _percent(Interval(self.change_pct, self.low_pct, self.high_pct))
        line = f"{title}: {self._busier()}{change}, {records}, limit {self.limit_pct:g} %"
        line = f"{line}; mainly {self.cause}" if self.cause else line
        if self.without_cpu_wait and not self._whole_lengths_decide():
            line = f"{line}; without waiting for a CPU {_percent(self.without_cpu_wait)}"
        return f"{line}; {self._remedy()}" if self.verdict is Verdict.CANNOT_DECIDE else line

    def _whole_lengths_decide(self) -> bool:
        beyond = {
            Verdict.SLOWER: self.low_pct > self.limit_pct,
            Verdict.NOT_SLOWER: self.high_pct <= self.limit_pct,
        }
        return beyond.get(self.verdict, False)

    def _busier(self) -> str:
        if not self.busier:
            return ""
        when = "" if self.busier == "new" else " while the old records were made"
        return f"the machine was busier{when}: "

    def _remedy(self) -> str:
        """Return what would decide it."""
        if self.busier:
            return "record again while the machine does nothing else"
        if math.isnan(self.low_pct):
            return "record at least 2 runs on each side"
        if self.sessions_needed is None:
            return f"the change is too close to the limit for {MAX_SESSIONS} sessions on each side to decide"
        return f"about {counted(self.sessions_needed, 'session')} on each side would decide"


def check(
    new: Sequence[Explained],
    old: Sequence[Explained],
    limit_pct: float,
    if_work_differs: str | None = "compare records of the same work",
) -> CheckedRecords:
    """Compare records of the same work, some new and some old; at least one of each.

    Args:
        limit_pct: a larger change counts as slower.
        if_work_differs: what to do about records of different work; None compares them all the same.
    """
    if reason := obstacle(new, old, if_work_differs):
        nothing = math.nan
        return CheckedRecords(Verdict.CANNOT_DECIDE, nothing, nothing, nothing, limit_pct, [], [], "", reason)
    return _judged(compare_records(old, new), new, old, limit_pct)


def _judged(
    comparison: Comparison, new: Sequence[Explained], old: Sequence[Explained], limit_pct: float
) -> CheckedRecords:
    length, undisturbed = comparison.of_cell(TIME, WHOLE), comparison.undisturbed
    assert length and undisturbed, "records have both"
    change, without_cpu_wait = in_percent(length), in_percent(undisturbed)
    decided, busier = verdict(change, without_cpu_wait, limit_pct, comparison.more_cpu_wait)
    sessions = [len({session_of(record) for record in side}) for side in (new, old)]
    return CheckedRecords(
        verdict=decided,
        change_pct=change.value,
        low_pct=change.low,
        high_pct=change.high,
        limit_pct=limit_pct,
        old_s=[_length_s(record) for record in old],
        new_s=[_length_s(record) for record in new],
        cause=wording.main_cause(comparison.causes[WHOLE]),
        without_cpu_wait=without_cpu_wait,
        busier=busier,
        sessions_needed=sessions_needed(undisturbed.ratio, limit_pct, sessions),
    )


def in_percent(change: CellChange) -> Interval:
    """Return by how much the new side is longer."""
    return Interval(*(100 * (end - 1) for end in (change.ratio.value, change.ratio.low, change.ratio.high)))


def verdict(
    change: Interval, without_cpu_wait: Interval, limit_pct: float, more_cpu_wait: float = 0.0
) -> tuple[Verdict, Literal["", "new", "old"]]:
    """Return the verdict, and which side's wait for a CPU prevents another one.

    Args:
        change, without_cpu_wait: by how many per cent the new side is longer; NaN ends decide nothing.
        more_cpu_wait: the share of the time in which threads waited, of the new side minus the old side.
    """
    most_by_wait, least_by_wait = max(0.0, more_cpu_wait), min(0.0, more_cpu_wait)
    upper_limit, lower_limit = (_beyond(limit_pct, wait) for wait in (most_by_wait, least_by_wait))
    has_old_side_waited = more_cpu_wait < -SAME_WAIT
    if without_cpu_wait.low > upper_limit and (change.value > limit_pct or has_old_side_waited):
        return Verdict.SLOWER, ""
    is_longer = without_cpu_wait.value > upper_limit and without_cpu_wait.low > _beyond(0, most_by_wait)
    if change.low > limit_pct and is_longer:
        return Verdict.SLOWER, ""
    if without_cpu_wait.high <= lower_limit and change.value <= limit_pct:
        return Verdict.NOT_SLOWER, ""
    if change.high <= limit_pct and without_cpu_wait.value <= lower_limit and not has_old_side_waited:
        return Verdict.NOT_SLOWER, ""
    if change.low > limit_pct or (without_cpu_wait.high <= limit_pct < change.value):
        return Verdict.CANNOT_DECIDE, "new"
    if change.high <= limit_pct or (without_cpu_wait.low > limit_pct >= change.value):
        return Verdict.CANNOT_DECIDE, "old"
    return Verdict.CANNOT_DECIDE, ""


def _beyond(limit_pct: float, more_cpu_wait: float) -> float:
    """Return a limit after the slowdown that so much more of a wait explains."""
    return 100 * math.expm1(math.log1p(limit_pct / 100) + SLOWDOWN * more_cpu_wait)


def sessions_needed(ratio: Interval, limit_pct: float, sessions: Sequence[int]) -> int | None:
    """Return how many sessions on each side would decide, if they vary as these do; None above MAX_SESSIONS.

    Args:
        ratio: of the lengths, with its interval.
        sessions: how many each side has.
    """
    if math.isnan(ratio.low) or ratio.low <= 0:
        return None
    distance = abs(math.log(ratio.value) - math.log1p(limit_pct / 100))
    margin = math.log(ratio.high / ratio.low) / 2
    on_each_side = 2 / sum(1 / number for number in sessions)
    if not distance or on_each_side * (margin / distance) ** 2 > MAX_SESSIONS:
        return None
    return max(2, math.ceil(on_each_side * (margin / distance) ** 2))


def _length_s(record: Explained) -> float:
    return sum(repeat.makespan for repeat in record.timed) / max(1, len(record.timed))


def _percent(change: Interval) -> str:
    between = "" if math.isnan(change.low) else f" ({change.low:+.1f} to {change.high:+.1f} %)"
    return f"{change.value:+.1f} %{between}"
