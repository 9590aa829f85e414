"""A task's way to its thread, backwards: what each moment before its start was spent on, what came before.

A moment belongs to the stage that the task was in. What goes from one process to another is with the sender
for as long as the sender goes on being busy after it wrote, and with the receiver since the receiver became
busy without a pause until it took it up: it may have lain there. In between it is on the wire, where kernels
and wake-ups are too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from dasklab.breakdown.busy import Spells
from dasklab.breakdown.causes import LAG, LOGIC, LOOP, MESSAGE, PEER, RECEIVED, SERIALISE, TIMER, WIRE, Part
from dasklab.breakdown.run import SCHEDULER, Fetch, Run, Task

Between = Callable[[float, float], Iterator[Part]]
Found = tuple[list[Part], float, Task | None]
IDLE = Spells()
TIMER_S = 0.005  # Dask's longest interval between two batches; workers have 2 ms


def clipped(parts: Iterable[Part], start: float, stop: float) -> Iterator[Part]:
    """Parts between two times, in order."""
    for part in sorted(parts, key=lambda part: part.start):
        if part.stop > start and part.start < stop:
            begin, end = max(part.start, start), min(part.stop, stop)
            yield Part(begin, end, part.cause, part.place, part.key)


class Way:
    """Parts of time that are laid down backwards, each up to where the one after it began."""

    def __init__(self, until: float) -> None:
        self.begin = until
        self.parts: list[Part] = []

    def back(self, to: float | None, between: Between) -> None:
        """Go back to a time, if it was seen and is earlier."""
        if to is not None and to < self.begin:
            self.parts.extend(between(to, self.begin))
            self.begin = to


def way(run: Run, task: Task) -> Found:
    """The parts before a task's start, when the first begins, and whose end they began with.

    Without a task that triggered it, its way begins when the scheduler chose a worker for it.
    """
    done, worker, key = Way(task.start), task.worker, task.key
    done.back(task.executing, whole(LAG, worker, key))
    done.back(task.ready, whole(LAG, worker, key))
    done.back(task.arrived, partial(_data, run, task))
    done.back(task.sent, _transit(run, (SCHEDULER, LOOP), (worker, LAG), MESSAGE, key))
    done.back(task.decided, _held(task.due, LOOP, SCHEDULER, key))
    trigger = run.by_key.get(task.trigger)
    if trigger is None or trigger is task or task.decided is None:
        return done.parts, done.begin, None
    done.back(trigger.handled, whole(LOGIC, SCHEDULER, key))
    report(run, trigger, done)
    return done.parts, done.begin, trigger


def report(run: Run, task: Task, done: Way) -> None:
    """From a task's end until the scheduler has dealt with it."""
    worker, key = task.worker, task.key
    done.back(task.reported, _transit(run, (worker, LAG), (SCHEDULER, LOOP), MESSAGE, key))
    done.back(task.done, _held(task.report_due, LAG, worker, key))
    done.back(task.stop, whole(LAG, worker, key))


def whole(cause: str, place: str, key: str) -> Between:
    """All of some time has one cause."""

    def between(start: float, stop: float) -> Iterator[Part]:
        yield Part(start, stop, cause, place, key)

    return between


def _held(due: float | None, late: str, place: str, key: str) -> Between:
    """A message that waits to be sent: until it is due Dask's timer may hold it back, for so long at most.

    Before that it was not even handed over, after that the sender was late.
    """

    def between(start: float, stop: float) -> Iterator[Part]:
        done, free = Way(stop), max(start, due or start)
        done.back(free, whole(late, place, key))
        done.back(max(start, free - TIMER_S), whole(TIMER, place, key))
        done.back(start, whole(late, place, key))
        yield from done.parts

    return between


def _transit(
    run: Run,
    sender: tuple[str, str],
    receiver: tuple[str, str],
    wire: str,
    key: str,
    seen: tuple[float | None, float | None] = (None, None),
) -> Between:
    """From one process to another, each with the cause of its own share; ``seen``: it was on the wire."""
    (source, left), (target, taken) = sender, receiver
    pair = f"{target} < {source}"

    def place(cause: str, node: str) -> str:
        return node if cause in (LAG, LOOP) else pair

    def between(start: float, stop: float) -> Iterator[Part]:
        first, last = seen
        wrote = first or run.busy.get(source, IDLE).around(start)[1]
        free = last or run.busy.get(target, IDLE).around(stop)[0]
        done = Way(stop)
        done.back(max(start, free), whole(taken, place(taken, target), key))
        done.back(max(start, min(wrote, stop)), whole(wire, pair, key))
        done.back(start, whole(left, place(left, source), key))
        yield from done.parts

    return between


def _data(run: Run, task: Task, start: float, stop: float) -> Iterator[Part]:
    """What a task that waits for data waits for: at each moment the fetch that brought the last of it."""
    found = {id(f): f for need in task.needs for f in run.fetches_by_key.get((task.worker, need.key), ())}
    done = Way(stop)
    for fetch in sorted(found.values(), key=lambda fetch: fetch.stop, reverse=True):
        if fetch.start < done.begin and fetch.stop > start:
            done.back(max(start, fetch.stop), partial(_unasked, run, task))
            done.back(max(start, fetch.start), partial(fetching, run, fetch, task.key))
    done.back(start, partial(_unasked, run, task))
    yield from done.parts


def _unasked(run: Run, task: Task, start: float, stop: float) -> Iterator[Part]:
    """Data was needed and not asked for: another fetch was waited for, else the worker had not come to it."""
    done = Way(stop)
    others = run.fetches_between(task.worker, start, stop)
    for fetch in sorted(others, key=lambda fetch: fetch.stop, reverse=True):
        if fetch.start < done.begin:
            done.back(max(start, fetch.stop), _after(fetch, task))
            done.back(max(start, fetch.start), partial(fetching, run, fetch, task.key))
    done.back(start, whole(LAG, task.worker, task.key))
    yield from done.parts


def _after(fetch: Fetch, task: Task) -> Between:
    """After a peer said that it was busy Dask waits before it asks again."""
    if fetch.busy:
        return whole(PEER, f"{fetch.receiver} < {fetch.sender}", task.key)
    return whole(LAG, task.worker, task.key)


def fetching(run: Run, fetch: Fetch, key: str, start: float, stop: float) -> Iterator[Part]:
    """The phases of a fetch, as far as they lie between two times."""
    pair = f"{fetch.receiver} < {fetch.sender}"
    if fetch.busy:
        yield Part(start, stop, PEER, pair, key)
        return
    served = min(max(fetch.serve_start or fetch.start, fetch.start), fetch.stop)
    packed = min(served + fetch.serialise, fetch.stop)
    there = max(packed, fetch.stop - fetch.deserialise)
    done, sender, receiver = Way(fetch.stop), (fetch.sender, PEER), (fetch.receiver, RECEIVED)
    done.back(there, whole(SERIALISE, fetch.receiver, key))
    done.back(packed, _transit(run, sender, receiver, WIRE, key, (fetch.first, fetch.last)))
    done.back(served, whole(SERIALISE, fetch.sender, key))
    done.back(fetch.start, _transit(run, receiver, sender, WIRE, key))
    yield from clipped(done.parts, start, stop)
