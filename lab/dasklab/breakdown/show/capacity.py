"""How many workers were there over time, as a part of the headline."""

from __future__ import annotations

from collections.abc import Sequence

from dasklab.breakdown.answers.facts.capacity import Stretch, capacity, most_at_once
from dasklab.breakdown.model.repeat import Repeat
from dasklab.terminal import counted

LEAST_SHARE, LEAST_S = 0.02, 0.1  # of the repeat: shorter changes are not mentioned
MAX_NAMED_STRETCHES = 4


def capacity_clause(repeat: Repeat) -> str:
    """Return ``1 of 3 workers until 13.6 s, then all 3 workers``; empty if their number did not change."""
    stretches = capacity(repeat, max(LEAST_S, LEAST_SHARE * repeat.makespan))
    most = max((stretch.workers for stretch in stretches), default=0)
    if len(stretches) < 2:
        return ""
    if len(stretches) > MAX_NAMED_STRETCHES:
        least = min(stretch.workers for stretch in stretches)
        mean = sum(stretch.workers * stretch.seconds for stretch in stretches) / repeat.makespan
        return f"between {least} and {counted(most, 'worker')}, {mean:.1f} on average"
    return ", then ".join(_stretches(stretches, most))


def threads_in_use(repeat: Repeat) -> str:
    """Say of a cluster that changed size which threads it had over time, and how many of them ran tasks."""
    stretches = capacity(repeat, max(LEAST_S, LEAST_SHARE * repeat.makespan))
    if len(stretches) < 2:
        return ""
    used = [most_at_once(repeat, stretch) for stretch in stretches]
    had_s, used_s = (
        sum(count * stretch.seconds for count, stretch in zip(counts, stretches, strict=True))
        for counts in ([stretch.threads for stretch in stretches], used)
    )
    parts = [
        f"{counted(stretch.threads, 'thread')} until {stretch.stop:.1f} s, at most {most} of them at work"
        for stretch, most in zip(stretches, used, strict=True)
    ]
    over_time = f" It had {'; then '.join(parts)}." if len(stretches) <= MAX_NAMED_STRETCHES else ""
    return (
        f"The cluster changed its size.{over_time} The fewest that would have done the same are {used_s:.0f}"
        f" of {had_s:.0f} thread-seconds."
    )


def _stretches(stretches: Sequence[Stretch], most: int) -> list[str]:
    *others, last = stretches
    return [
        *(f"{_amount(stretch, most)} until {stretch.stop:.1f} s" for stretch in others),
        _amount(last, most),
    ]


def _amount(stretch: Stretch, most: int) -> str:
    if not stretch.workers:
        return "no worker"
    if stretch.workers == most:
        return {1: "1 worker", 2: "both workers"}.get(most, f"all {most} workers")
    return f"{stretch.workers} of {counted(most, 'worker')}"
