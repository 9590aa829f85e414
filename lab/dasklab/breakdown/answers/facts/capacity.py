"""How many workers were there over time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dasklab.breakdown.model.repeat import FIRST_WORKER, Repeat
from dasklab.breakdown.model.step_function import StepFunction


@dataclass(frozen=True)
class Stretch:
    """A time with the same workers. ``start`` and ``stop`` are seconds since the repeat began."""

    start: float
    stop: float
    workers: int
    threads: int

    @property
    def seconds(self) -> float:
        return self.stop - self.start


def capacity(repeat: Repeat, least_s: float) -> list[Stretch]:
    """Return the stretches of a repeat in their order; shorter ones than ``least_s`` join the one before.

    A short one at the beginning joins the one after it.
    """
    away = repeat.evidence.away
    absences: list[tuple[int, float, float]] = list(
        zip(away.member.tolist(), away.start.tolist(), away.stop.tolist(), strict=True)
    )
    for node, name in enumerate(repeat.threads, start=FIRST_WORKER):
        absences.append((node, repeat.start, repeat.joined.get(name, repeat.start)))
        absences.append((node, repeat.left.get(name, repeat.stop), repeat.stop))
    moments = np.clip([time for _, *ends in absences for time in ends], repeat.start, repeat.stop)
    times = np.unique([repeat.start, *moments.tolist(), repeat.stop]).tolist()
    stretches: list[Stretch] = []
    for start, stop in pairwise(times):
        middle = (start + stop) / 2
        absent = {node for node, away_start, away_stop in absences if away_start < middle < away_stop}
        present = [
            threads
            for node, threads in enumerate(repeat.threads.values(), start=FIRST_WORKER)
            if node not in absent
        ]
        new = Stretch(start - repeat.start, stop - repeat.start, len(present), sum(present))
        last = stretches[-1] if stretches else None
        if last and (new.seconds < least_s or new.workers == last.workers):
            stretches[-1] = Stretch(last.start, new.stop, last.workers, last.threads)
        elif last and len(stretches) == 1 and last.seconds < least_s:
            stretches[-1] = Stretch(last.start, new.stop, new.workers, new.threads)
        else:
            stretches.append(new)
    return stretches


def most_at_once(repeat: Repeat, stretch: Stretch | None = None) -> int:
    """Return how many tasks ran at the same time, at most; in all of the repeat or in a stretch of it."""
    since, until = (stretch.start, stretch.stop) if stretch else (0.0, repeat.makespan)
    start = np.maximum(repeat.tasks.start, repeat.start + since)
    stop = np.minimum(repeat.tasks.stop, repeat.start + until)
    start, stop = start[start < stop], stop[start < stop]
    ends, changes = np.concatenate([start, stop]), np.repeat([1, -1], len(start))
    running = StepFunction.from_increments(ends, changes)
    return int(running.value.max(initial=0))
