"""Sentences about how many workers were there over time."""

from __future__ import annotations

from collections.abc import Iterator

from dasklab.breakdown.answers.facts.capacity import Stretch, capacity
from dasklab.breakdown.model.repeat import Repeat
from dasklab.terminal import counted

LEAST_SHARE, LEAST_S = 0.02, 0.1  # of the repeat: shorter changes are not mentioned
MAX_NAMED_STRETCHES = 4


def capacity_sentences(repeat: Repeat) -> Iterator[str]:
    """Say how many workers were there, if that changed."""
    stretches = capacity(repeat, max(LEAST_S, LEAST_SHARE * repeat.makespan))
    most = max((stretch.workers for stretch in stretches), default=0)
    if len(stretches) < 2:
        return
    if len(stretches) > MAX_NAMED_STRETCHES:
        least = min(stretch.workers for stretch in stretches)
        mean = sum(stretch.workers * stretch.seconds for stretch in stretches) / repeat.makespan
        yield f"Between {least} and {counted(most, 'worker')} were there, {mean:.1f} on average."
        return
    yield f"There {_number(stretches[0], most)} {_until(stretches)}."


def _until(stretches: list[Stretch]) -> str:
    first, *others = stretches
    most = max(stretch.workers for stretch in stretches)
    parts = [f"until {first.stop:.1f} s after the start"]
    for stretch in others:
        end = "" if stretch is others[-1] else f" until {stretch.stop:.1f} s"
        parts.append(f"{_amount(stretch, most)}{end}")
    return ", then ".join(parts)


def _number(stretch: Stretch, most: int) -> str:
    return f"{'was' if stretch.workers < 2 else 'were'} {_amount(stretch, most)}"


def _amount(stretch: Stretch, most: int) -> str:
    if not stretch.workers:
        return "no worker"
    if stretch.workers == most:
        return f"all {most} workers" if most > 1 else "1 worker"
    return f"{stretch.workers} of {counted(most, 'worker')}"
