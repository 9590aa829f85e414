"""Replay a repeat without its waits for the wire: the most that a faster network could bring.

A list schedule: each task runs on the worker that it had, after the tasks that it came after, on whichever
    thread of the worker is free first, for as long as it took. What lay between is kept, except for the
    wire's share: choices, messages, timers, event loops, serialising, busy peers. A fetch begins when the
    first task that needs its data has arrived. Dask might have decided otherwise had data arrived sooner, so
    this is no prediction. How far the same replay *with* the wire misses the repeat as it was shows how good
    the model is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from dasklab.breakdown.assign.timeline import explain_after, explain_before
from dasklab.breakdown.assign.transfers import explain_fetches
from dasklab.breakdown.model.arrays import NONE, Codes, Floats
from dasklab.breakdown.model.causes import MESSAGE, WIRE, Cause
from dasklab.breakdown.model.intervals import Windows
from dasklab.breakdown.model.repeat import Repeat

ARRIVE, STOP, READY = range(3)  # kinds of events, in the order in which simultaneous ones are handled


@dataclass(frozen=True)
class Replay:
    """Seconds that a repeat takes in the model: as it was, and with a network that takes no time."""

    as_it_was_s: float
    without_wire_s: float


def replay(repeat: Repeat) -> Replay:
    """Replay a repeat twice. Another order of tasks may make the second one longer: then it shows nothing."""
    delays = _delays(repeat)
    as_it_was = _Schedule(repeat, delays).makespan()
    without_wire = _Schedule(repeat, _without_wire(repeat, delays)).makespan()
    return Replay(as_it_was, min(as_it_was, without_wire))


def mean(replays: Sequence[Replay]) -> Replay | None:
    """Return the mean of several repeats; None without any."""
    if not replays:
        return None
    count = len(replays)
    return Replay(
        sum(replay.as_it_was_s for replay in replays) / count,
        sum(replay.without_wire_s for replay in replays) / count,
    )


@dataclass(frozen=True)
class _Delays:
    """What lies between the tasks of a repeat, in seconds; a row per task, or per need for ``fetch``.

    Attributes:
        first: when it was assigned, since the repeat's start, for a task that comes after no other.
        choice: from the last end that it came after to the choice of its worker.
        message: from the choice until the worker has the task.
        lag: from the moment when thread and data were there to its start.
        report: from its end until the scheduler has handled it.
        fetch: from the first need of some data until it has arrived.
        after: the tasks that have to be handled before it, as pairs (task, earlier task).
    """

    first: Floats
    choice: Floats
    message: Floats
    lag: Floats
    report: Floats
    fetch: Floats
    after: Codes


def _delays(repeat: Repeat) -> _Delays:
    tasks, fetch = repeat.tasks, repeat.need_fetch
    ready = np.fmin(tasks.start, tasks.stamps["ready"])
    arrived = np.fmin(ready, tasks.stamps["arrived"])
    decided = np.fmin(arrived, tasks.stamps["decided"])
    after = _after(repeat)
    latest = np.full(len(tasks), -np.inf)
    np.maximum.at(latest, after[:, 0], tasks.handled[after[:, 1]])
    latest = np.where(np.isinf(latest), decided, latest)
    previous = repeat.previous_on_thread
    free = np.where(previous != NONE, np.maximum(ready, tasks.stop[previous]), ready)
    needed = fetch != NONE
    fetched = np.full(len(tasks), -np.inf)
    np.maximum.at(fetched, repeat.needs.task[needed], repeat.fetches.stop[fetch[needed]])
    complete = np.maximum(arrived, np.minimum(ready, np.where(np.isinf(fetched), arrived, fetched)))
    takes = np.zeros(len(fetch))
    begin, end = repeat.fetches.start[fetch[needed]], repeat.fetches.stop[fetch[needed]]
    takes[needed] = np.maximum(0.0, end - np.minimum(begin, arrived[repeat.needs.task[needed]]))
    return _Delays(
        first=np.maximum(0.0, decided - repeat.start),
        choice=np.maximum(0.0, decided - latest),
        message=arrived - decided,
        lag=ready - complete + np.maximum(0.0, tasks.start - free),
        report=tasks.handled - tasks.stop,
        fetch=takes,
        after=after,
    )


def _after(repeat: Repeat) -> Codes:
    """Return what each task came after: what it needs, and what triggered it."""
    rows = np.arange(len(repeat.tasks))
    pairs = np.column_stack(
        [
            np.concatenate([repeat.needs.task, rows]),
            np.concatenate([repeat.need_source, repeat.tasks.trigger]),
        ]
    )
    # a task that was recorded to start later cannot have been waited for: clocks err
    start = repeat.tasks.start
    possible = (pairs[:, 1] != NONE) & (start[pairs[:, 1]] < start[pairs[:, 0]])
    return np.unique(pairs[possible], axis=0)


def _without_wire(repeat: Repeat, delays: _Delays) -> _Delays:
    tasks = repeat.tasks
    rows = np.arange(len(tasks))
    arrived = np.fmin(np.fmin(tasks.start, tasks.stamps["ready"]), tasks.stamps["arrived"])
    messages = Windows(rows, arrived - delays.message, arrived, rows)
    explain_before(repeat, messages)
    reported = Windows(rows, tasks.stop, tasks.handled, rows)
    explain_after(repeat, reported)
    fetches = repeat.fetches
    numbers = np.arange(len(fetches))
    transfer = Windows(np.zeros(len(fetches), np.int64), fetches.start, fetches.stop, numbers)
    explain_fetches(repeat, transfer, numbers, numbers, fetches.start, fetches.stop)
    takes = fetches.stop - fetches.start - _seconds(transfer, WIRE)
    needed = repeat.need_fetch != NONE
    return _Delays(
        first=delays.first,
        choice=delays.choice,
        message=delays.message - _seconds(messages, MESSAGE),
        lag=delays.lag,
        report=delays.report - _seconds(reported, MESSAGE),
        fetch=np.where(needed, takes[repeat.need_fetch], 0.0) if len(fetches) else delays.fetch,
        after=delays.after,
    )


def _seconds(windows: Windows, cause: Cause) -> Floats:
    """Sum the seconds of a cause in each window."""
    intervals = windows.intervals()
    mine = intervals.select(intervals.is_cause(cause))
    return np.asarray(np.bincount(mine.lane, mine.seconds, minlength=len(windows.low)), np.float64)


class _Schedule:
    """The state of one replay: pending events, free threads and ready tasks of each worker.

    Times are seconds since the repeat's start. Columns become lists: single items of arrays are slow.
    """

    def __init__(self, repeat: Repeat, delays: _Delays) -> None:
        self.repeat = repeat
        self.until_arrival = (delays.choice + delays.message).tolist()
        self.first = (delays.first + delays.message).tolist()
        self.until_stop = (delays.lag + repeat.tasks.stop - repeat.tasks.start).tolist()
        self.report, self.fetch = delays.report.tolist(), delays.fetch.tolist()
        self.worker, self.order = repeat.tasks.worker.tolist(), repeat.tasks.start.tolist()
        self.missing = np.bincount(delays.after[:, 0], minlength=len(self.worker)).tolist()
        self.released = [0.0] * len(self.worker)  # when the scheduler has handled all that each comes after
        self.followers = _lists(delays.after[:, 1], delays.after[:, 0], len(self.worker))
        needs = np.flatnonzero(repeat.need_fetch != NONE)
        self.needed = _lists(repeat.needs.task[needs], needs, len(self.worker))  # brought by a fetch
        worker_of_need = repeat.tasks.worker[repeat.needs.task]
        self.place = (
            worker_of_need * len(repeat.keys) + repeat.needs.key
        ).tolist()  # a key's data on a worker
        self.free = {repeat.node(name): count for name, count in repeat.threads.items()}
        self.ready: dict[int, list[tuple[float, int]]] = {worker: [] for worker in self.free}
        self.available: dict[int, float] = {}  # when a worker has, or will have, the data of a place
        self.events: list[tuple[float, int, int]] = []
        self.end = 0.0

    def makespan(self) -> float:
        """Return the seconds until the client has the result."""
        self.events = [
            (self.first[task], ARRIVE, task) for task, missing in enumerate(self.missing) if not missing
        ]
        heapify(self.events)
        handlers = (self._arrive, self._stop, self._wait)
        events = self.events
        while events:
            now, kind, task = heappop(events)
            handlers[kind](now, task)
        last = float(self.repeat.tasks.handled.max()) if len(self.repeat.tasks) else self.repeat.start
        return self.end + max(0.0, self.repeat.stop - last)

    def _arrive(self, now: float, task: int) -> None:
        """The worker has the task: it fetches the data that it lacks."""
        complete = now
        for need in self.needed[task]:
            complete = max(complete, self.available.setdefault(self.place[need], now + self.fetch[need]))
        if complete > now:
            heappush(self.events, (complete, READY, task))
        else:
            self._wait(now, task)

    def _wait(self, now: float, task: int) -> None:
        worker = self.worker[task]
        heappush(self.ready[worker], (self.order[task], task))
        self._start(now, worker)

    def _start(self, now: float, worker: int) -> None:
        """A free thread takes the ready task that started first."""
        ready = self.ready[worker]
        while ready and self.free[worker] > 0:
            _, task = heappop(ready)
            self.free[worker] -= 1
            heappush(self.events, (now + self.until_stop[task], STOP, task))

    def _stop(self, now: float, task: int) -> None:
        worker = self.worker[task]
        self.free[worker] += 1
        self._start(now, worker)
        handled = now + self.report[task]
        self.end = max(self.end, handled)
        for follower in self.followers[task]:
            self.missing[follower] -= 1
            self.released[follower] = max(self.released[follower], handled)
            if not self.missing[follower]:
                arrival = self.released[follower] + self.until_arrival[follower]
                heappush(self.events, (arrival, ARRIVE, follower))


def _lists(group: Codes, members: Codes, count: int) -> list[list[int]]:
    """Return the members of each group."""
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=count)).tolist()
    flat = members[order].tolist()
    return [flat[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
