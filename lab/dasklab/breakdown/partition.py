"""The account: every second of every thread of a run, from start to end, with exactly one cause. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from dasklab.breakdown.causes import CLIENT, COMPUTE, DISK, NOTHING, QUEUE, Part
from dasklab.breakdown.run import Run, Task
from dasklab.breakdown.timeline import clipped, way


@dataclass(frozen=True)
class Thread:
    """A thread's time: parts in order, without gaps, from the run's start to its end."""

    worker: str
    thread: int
    parts: tuple[Part, ...]


def account(run: Run) -> list[Thread]:
    """The run's threads with their time accounted for."""
    world = World(run)
    return [
        Thread(worker, thread, tuple(_thread(run, world, worker, tasks)))
        for (worker, thread), tasks in run.by_thread.items()
    ]


def _thread(run: Run, world: World, worker: str, tasks: list[Task]) -> Iterator[Part]:
    now = run.start
    for task in tasks:
        start, stop = min(max(now, task.start), run.stop), min(task.stop, run.stop)
        if start > now:
            yield from _before(run, world, task, now, start)
        if stop > start:
            yield Part(start, stop, COMPUTE, worker, task.key)
        now = max(now, start, stop)
    if run.stop > now:
        yield from world.idle(worker, now, run.stop)


def _before(run: Run, world: World, task: Task, start: float, stop: float) -> Iterator[Part]:
    """A gap before a task: idle until its way begins, then the way."""
    parts, begin, _ = way(run, task)
    if begin > start:
        yield from world.idle(task.worker, start, min(begin, stop))
    kept = [part for part in clipped(parts, start, stop) if part.seconds > 0]
    yield from _disk(kept, task.disk)


def _disk(parts: list[Part], seconds: float) -> Iterator[Part]:
    """Dask tells only how long disks took for a task: it is taken off the end of its way."""
    kept: list[Part] = []
    for part in reversed(parts):
        taken = min(seconds, part.seconds)
        seconds -= taken
        if taken > 0:
            kept.append(Part(part.stop - taken, part.stop, DISK, part.place.partition(" ")[0], part.key))
        if part.seconds > taken:
            kept.append(Part(part.start, part.stop - taken, part.cause, part.place, part.key))
    yield from reversed(kept)


class World:
    """What there was to do elsewhere, at each time: the reason why a thread without work had none."""

    def __init__(self, run: Run) -> None:
        self.times: list[float] = [float("-inf")]
        self.states: list[tuple[bool, bool, tuple[str, ...]]] = [(False, False, ())]
        for time, state in _states(run):
            if state != self.states[-1]:
                self.times.append(time)
                self.states.append(state)

    def idle(self, worker: str, start: float, stop: float) -> Iterator[Part]:
        """A worker's time without work."""
        index = bisect_right(self.times, start) - 1
        while start < stop:
            end = self.times[index + 1] if index + 1 < len(self.times) else stop
            yield Part(start, min(end, stop), *self._why(worker, index))
            start = min(end, stop)
            index += 1

    def _why(self, worker: str, index: int) -> tuple[str, str]:
        unfinished, queued, crowded = self.states[index]
        others = [name for name in crowded if name != worker]
        if not unfinished:
            return CLIENT, "client"
        if others:
            return QUEUE, others[0]
        return (QUEUE, "scheduler") if queued else (NOTHING, worker)


def _states(run: Run) -> Iterator[tuple[float, tuple[bool, bool, tuple[str, ...]]]]:
    """After each change: is anything unfinished, kept back, and who has more than threads (most first)."""
    events: list[tuple[float, str, int]] = [(t, "unfinished", n) for t, n in run.unfinished]
    events += [(t, "queued", n) for t, n in run.queued]
    for task in run.tasks:
        events += [(task.given, task.worker, 1), (task.stop, task.worker, -1)]
    events.sort(key=lambda event: event[0])
    load = dict.fromkeys(run.threads, 0)
    told = {"unfinished": 0, "queued": 0}
    for time, same in groupby(events, key=lambda event: event[0]):
        for _, what, number in same:
            if what in told:
                told[what] = number
            else:
                load[what] = load.get(what, 0) + number
        excess = {name: n - run.threads.get(name, 1) for name, n in load.items()}
        crowded = tuple(sorted((n for n in excess if excess[n] > 0), key=lambda n: -excess[n]))
        yield time, (told["unfinished"] > 0, told["queued"] > 0, crowded)
