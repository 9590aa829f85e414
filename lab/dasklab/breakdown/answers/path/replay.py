"""Replay a repeat without its waits for the wire: the most that a faster network could bring.

A list schedule: each task runs on the worker that it had, after the tasks that it came after, on whichever
    thread of the worker is free first, for as long as it took. What lay between is kept, except for the
    wire's share: choices, messages, timers, event loops, serialising, busy peers. A fetch begins when the
    first task that needs its data has arrived. The client sends a graph when it has the results that it
    waited for before; its own link is part of the wire, with what it gathers, scatters and sends. Dask might
    have decided otherwise had data arrived sooner, so this is no prediction. How far the same replay *with*
    the wire misses the repeat as it was shows how good the model is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from dasklab.breakdown.assign.timeline import explain_after, explain_before
from dasklab.breakdown.assign.transfers import explain_fetches, on_client_link
from dasklab.breakdown.model.arrays import NONE, Codes, Floats, distinct
from dasklab.breakdown.model.causes import MESSAGE, WIRE, Cause
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.intervals import Windows
from dasklab.breakdown.model.repeat import Repeat

CLOCK_S = 0.001  # the client's clock may be off by this
ARRIVE, STOP, READY, SECEDE = range(4)  # kinds of events, in the order in which simultaneous ones are handled


@dataclass(frozen=True)
class Replay:
    """Seconds that a repeat takes in the model: as it was, and with a network that takes no time.

    Attributes:
        transfer_s: seconds of all messages and transfers in which neither end was busy, also of those that
            nothing waited for.
        has_client: whether the client's calls were recorded. Else its own link is not part of the network.
    """

    as_it_was_s: float
    without_wire_s: float
    transfer_s: float = math.inf
    has_client: bool = True


def replay(repeat: Repeat) -> Replay:
    """Replay a repeat twice.

    Another order of tasks may make the second one longer: then it shows nothing; or shorter by more than all
    transfers took.
    """
    delays = _delays(repeat)
    less = _without_wire(repeat, delays)
    plan = _Plan(repeat, delays.after)
    as_it_was, without_wire = (_Schedule(repeat, kind, plan).makespan() for kind in (delays, less))
    transfer_s = sum(
        float((getattr(delays, name) - getattr(less, name)).sum())
        for name in ("first", "choice", "message", "report", "fetch", "last")
    )
    without_wire = min(as_it_was, max(without_wire, as_it_was - transfer_s))
    has_client = len(repeat.calls.kind) > 0 or bool(repeat.recorded_clients)
    return Replay(as_it_was, without_wire, transfer_s, has_client)


def mean(replays: Sequence[Replay]) -> Replay | None:
    """Return the mean of several repeats; None without any."""
    if not replays:
        return None
    count = len(replays)
    return Replay(
        sum(replay.as_it_was_s for replay in replays) / count,
        sum(replay.without_wire_s for replay in replays) / count,
        sum(replay.transfer_s for replay in replays) / count,
        all(replay.has_client for replay in replays),
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
        released: when the last of what it came after was handled; NaN if it came after no other.
        last: from the scheduler's handling of the last task until the client has the result.
        after: the tasks that have to be handled before it, as pairs (task, earlier task).
    """

    first: Floats
    choice: Floats
    message: Floats
    lag: Floats
    report: Floats
    fetch: Floats
    released: Floats
    last: np.float64
    after: Codes


def _delays(repeat: Repeat) -> _Delays:
    tasks, fetch = repeat.tasks, repeat.need_fetch
    ready = np.fmin(tasks.start, tasks.stamps["ready"])
    arrived = np.fmin(ready, tasks.stamps["arrived"])
    decided = np.fmin(arrived, tasks.stamps["decided"])
    after = _after(repeat)
    released = np.full(len(tasks), np.nan)
    np.fmax.at(released, after[:, 0], tasks.handled[after[:, 1]])
    latest = np.where(np.isnan(released), decided, released)
    previous = repeat.previous_on_thread
    free = np.where(previous != NONE, np.maximum(ready, tasks.freed[previous]), ready)
    needed = fetch != NONE
    fetched = np.full(len(tasks), -np.inf)
    np.maximum.at(fetched, repeat.needs.task[needed], repeat.fetches.stop[fetch[needed]])
    complete = np.maximum(arrived, np.minimum(ready, np.where(np.isinf(fetched), arrived, fetched)))
    takes = np.zeros(len(fetch))
    start, stop = repeat.fetches.start[fetch[needed]], repeat.fetches.stop[fetch[needed]]
    takes[needed] = np.maximum(0.0, stop - np.minimum(start, arrived[repeat.needs.task[needed]]))
    return _Delays(
        first=np.maximum(0.0, decided - repeat.start),
        choice=np.maximum(0.0, decided - latest),
        message=arrived - decided,
        lag=ready - complete + np.maximum(0.0, tasks.start - free),
        report=tasks.handled - tasks.stop,
        fetch=takes,
        released=released,
        last=np.maximum(0.0, repeat.stop - tasks.handled.max(initial=repeat.start)),
        after=after,
    )


def _after(repeat: Repeat) -> Codes:
    """Return what each task came after: what it needs, what triggered it, or what its client waited for."""
    rows = np.arange(len(repeat.tasks))
    by_client = np.where(repeat.tasks.trigger == NONE, _waited_for(repeat), NONE)
    pairs = np.column_stack(
        [
            np.concatenate([repeat.needs.task, rows, rows]),
            np.concatenate([repeat.need_source, repeat.tasks.trigger, by_client]),
        ]
    )
    # a task that was recorded to start later cannot have been waited for: clocks err
    start = repeat.tasks.start
    possible = (pairs[:, 1] != NONE) & (start[pairs[:, 1]] < start[pairs[:, 0]])
    count = max(1, len(repeat.tasks))
    return np.column_stack(np.divmod(distinct(pairs[possible] @ (count, 1)), count))


def _graph_arrivals(repeat: Repeat) -> tuple[Codes, Floats]:
    """Return for each task the last graph that had arrived when its worker was chosen, and when it had."""
    arrival = np.array([graph.received for graph in repeat.graphs])
    graph = np.searchsorted(arrival, repeat.tasks.assigned, side="right") - 1
    return graph, np.append(arrival, -np.inf)[graph]


def _waited_for(repeat: Repeat) -> Codes:
    """Return for each task the last one of whose end the client knew when it began the graph."""
    graph, _ = _graph_arrivals(repeat)
    graph_start = np.array([graph.start for graph in repeat.graphs])
    _, returned = repeat.calls.of_kind("sync")
    returned = np.append(-np.inf, np.sort(returned))
    learnt = returned[np.searchsorted(returned, graph_start + CLOCK_S, side="right") - 1]
    order = repeat.tasks.handled_order
    position = np.searchsorted(repeat.tasks.handled[order], learnt + CLOCK_S, side="right") - 1
    return np.append(np.append(order, NONE)[position], NONE)[graph]


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
    transfer = Windows(np.full(len(fetches), NONE), fetches.start, fetches.stop, numbers)
    explain_fetches(repeat, transfer, numbers, numbers, fetches.start, fetches.stop)
    stages = transfer.intervals()
    stages = stages.select(stages.is_cause(WIRE))
    on_wire = IntervalSets(fetches.receiver[stages.lane], stages.start, stages.stop)
    needed = np.flatnonzero(repeat.need_fetch != NONE)
    fetch, arrival = repeat.need_fetch[needed], arrived[repeat.needs.task[needed]]
    # a need that waited until its fetch began may have waited for other fetches of its worker
    before = on_wire.within(
        fetches.receiver[fetch], np.minimum(arrival, fetches.start[fetch]), fetches.start[fetch]
    )
    takes = delays.fetch.copy()
    takes[needed] = np.maximum(0.0, takes[needed] - _seconds(transfer, WIRE)[fetch] - before)
    decided = arrived - delays.message
    # a task that came after no other could start with the repeat
    start = np.fmax(repeat.start, delays.released)
    _, graph_arrived = _graph_arrivals(repeat)
    on_link, nobody = on_client_link(repeat), np.zeros(len(tasks), np.int64)
    link = np.where(graph_arrived > start, on_link.within(nobody, start, decided), 0.0)
    stop = np.array([repeat.stop])
    last = on_link.within(np.zeros(1, np.int64), stop - delays.last, stop)
    return _Delays(
        first=np.where(np.isnan(delays.released), np.maximum(0.0, delays.first - link), delays.first),
        choice=np.where(np.isnan(delays.released), delays.choice, np.maximum(0.0, delays.choice - link)),
        message=delays.message - _seconds(messages, MESSAGE),
        lag=delays.lag,
        report=delays.report - _seconds(reported, MESSAGE),
        fetch=takes,
        released=delays.released,
        last=delays.last - last[0],
        after=delays.after,
    )


def _seconds(windows: Windows, cause: Cause) -> Floats:
    """Sum the seconds of a cause in each window."""
    intervals = windows.intervals()
    of_cause = intervals.select(intervals.is_cause(cause))
    return np.asarray(np.bincount(of_cause.lane, of_cause.seconds, minlength=len(windows.start)), np.float64)


class _Plan:
    """What both replays share: where tasks run, in which order, and what each one needs and comes after.

    Columns become lists: single items of arrays are slow.
    """

    def __init__(self, repeat: Repeat, after: Codes) -> None:
        self.worker, self.order = repeat.tasks.worker.tolist(), repeat.tasks.start.tolist()
        self.threads = {repeat.node(name): count for name, count in repeat.threads.items()}
        self.missing = np.bincount(after[:, 0], minlength=len(self.worker)).tolist()
        self.followers = _Groups(after[:, 1], after[:, 0], len(self.worker))
        needs = np.flatnonzero(repeat.need_fetch != NONE)
        self.needed = _Groups(repeat.needs.task[needs], needs, len(self.worker))  # brought by a fetch
        # a key's data on a worker
        places = repeat.tasks.worker[repeat.needs.task] * len(repeat.keys) + repeat.needs.key
        self.place = places.tolist()


class _Groups:
    """Members of numbered groups. A list for each group would be too many objects."""

    def __init__(self, group: Codes, members: Codes, count: int) -> None:
        self.members: list[int] = members[np.argsort(group, kind="stable")].tolist()
        self.starts = [0, *np.cumsum(np.bincount(group, minlength=count)).tolist()]

    def __getitem__(self, group: int) -> list[int]:
        return self.members[self.starts[group] : self.starts[group + 1]]


class _Schedule:
    """The state of one replay: pending events, free threads and ready tasks of each worker.

    Times are seconds since the repeat's start.
    """

    def __init__(self, repeat: Repeat, delays: _Delays, plan: _Plan) -> None:
        self.plan = plan
        self.until_arrival = (delays.choice + delays.message).tolist()
        self.first = (delays.first + delays.message).tolist()
        self.until_stop = (delays.lag + repeat.tasks.stop - repeat.tasks.start).tolist()
        self.until_freed = (delays.lag + repeat.tasks.freed - repeat.tasks.start).tolist()
        self.last = float(delays.last)
        self.report, self.fetch = delays.report.tolist(), delays.fetch.tolist()
        self.missing = plan.missing.copy()
        self.released = [0.0] * len(self.missing)  # when the scheduler has handled all that each comes after
        self.free = plan.threads.copy()
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
        handlers = (self._arrive, self._stop, self._wait, self._free)
        events = self.events
        while events:
            now, kind, task = heappop(events)
            handlers[kind](now, task)
        return self.end + self.last

    def _arrive(self, now: float, task: int) -> None:
        """The worker has the task: it fetches the data that it lacks."""
        complete = now
        for need in self.plan.needed[task]:
            complete = max(complete, self.available.setdefault(self.plan.place[need], now + self.fetch[need]))
        if complete > now:
            heappush(self.events, (complete, READY, task))
        else:
            self._wait(now, task)

    def _wait(self, now: float, task: int) -> None:
        worker = self.plan.worker[task]
        heappush(self.ready[worker], (self.plan.order[task], task))
        self._start(now, worker)

    def _start(self, now: float, worker: int) -> None:
        """A free thread takes the ready task that started first."""
        ready = self.ready[worker]
        while ready and self.free[worker] > 0:
            _, task = heappop(ready)
            self.free[worker] -= 1
            heappush(self.events, (now + self.until_stop[task], STOP, task))
            if self.until_freed[task] < self.until_stop[task]:
                heappush(self.events, (now + self.until_freed[task], SECEDE, task))

    def _free(self, now: float, task: int) -> None:
        worker = self.plan.worker[task]
        self.free[worker] += 1
        self._start(now, worker)

    def _stop(self, now: float, task: int) -> None:
        if self.until_freed[task] >= self.until_stop[task]:
            self._free(now, task)
        handled = now + self.report[task]
        self.end = max(self.end, handled)
        for follower in self.plan.followers[task]:
            self.missing[follower] -= 1
            self.released[follower] = max(self.released[follower], handled)
            if not self.missing[follower]:
                arrival = self.released[follower] + self.until_arrival[follower]
                heappush(self.events, (arrival, ARRIVE, follower))
