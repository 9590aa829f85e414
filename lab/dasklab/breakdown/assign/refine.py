"""Refine causes with evidence: divide what the stages of tasks can only call computing, lag or idle.

A rule takes some seconds off intervals of certain causes and gives them another cause. The rules apply in
the order of ``DIVISIONS``; together they take no more than an interval has. What is moved off lies at the
interval's end, because for most evidence only the amount is known, not when.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dasklab.breakdown.assign.capacity import without_worker
from dasklab.breakdown.model.arrays import NONE, Codes, Floats
from dasklab.breakdown.model.causes import (
    ACTOR,
    AGAIN,
    ANSWER,
    BETWEEN,
    BUILD,
    COMPUTE,
    EXTERNAL,
    EXTERNAL_OR_STARVED,
    GARBAGE,
    GATHER,
    HOLDING,
    INTERPRETER,
    LAG,
    LOCK,
    LOGIC,
    LOOP,
    MEASURE,
    NESTED,
    NO_WORKER,
    NOTHING,
    PAUSED,
    PLAN,
    QUEUE,
    RESULT,
    SCATTER,
    SERIALISE,
    SHUFFLE,
    STARVED,
    UNDIVIDED,
    UNMETERED,
    UPLOAD,
    USER,
    Cause,
)
from dasklab.breakdown.model.intervals import TICK_S, Intervals, concatenate
from dasklab.breakdown.model.repeat import Repeat

AT_NODES = (COMPUTE, LAG, LOOP, LOGIC, SERIALISE)  # causes whose place is one process
OF_CLIENT = (USER, BUILD)  # causes of the thread that runs the user's program
OF_CLIENTS_LOOP = (UPLOAD, RESULT, SCATTER, GATHER)  # causes of both its threads
Seconds = Callable[[Repeat, Intervals], Floats]


@dataclass(frozen=True)
class Division:
    """Which causes are divided, what the part that is moved off is called, and how long it is.

    Attributes:
        of_own_worker: whether the part is about the worker whose thread it is, whatever place the cause had.
    """

    cause: Cause
    of: tuple[Cause, ...]
    seconds: Seconds
    of_own_worker: bool = False


def refine(repeat: Repeat, intervals: Intervals, worker: Codes | None = None) -> Intervals:
    """Apply all rules.

    Args:
        worker: for each lane the node of the worker whose thread it is. Without it, intervals of idle
            threads are not divided by what their worker did.
    """
    lane_worker = np.full(len(intervals), -1) if worker is None else worker[intervals.lane]
    context = replace(intervals, lane=lane_worker)
    left = intervals.seconds
    stop, parts = intervals.stop.copy(), []
    for division in DIVISIONS:
        rows = np.flatnonzero(intervals.is_cause(*division.of) & (left > TICK_S))
        moved = np.minimum(division.seconds(repeat, context.select(rows)), left[rows])
        some = moved > TICK_S
        rows, moved = rows[some], moved[some]
        part = context.select(rows)
        place = part.lane if division.of_own_worker else part.place
        part = replace(part, lane=intervals.lane[rows], place=place)
        codes = np.full(len(rows), division.cause.code)
        parts.append(replace(part, start=stop[rows] - moved, stop=stop[rows].copy(), cause=codes))
        stop[rows] -= moved
        left[rows] -= moved
    rest = replace(intervals, stop=stop).select(left > TICK_S)
    return concatenate([rest, *parts]).in_order()


def _computed_before(repeat: Repeat, intervals: Intervals) -> Floats:
    return np.where(np.isin(intervals.task, repeat.evidence.again), intervals.seconds, 0.0)


def _locks(repeat: Repeat, intervals: Intervals) -> Floats:
    return repeat.evidence.locks.within(intervals.task, intervals.start, intervals.stop)


def _holding(repeat: Repeat, intervals: Intervals) -> Floats:
    return repeat.evidence.holding.within(intervals.task, intervals.start, intervals.stop)


def _nested(repeat: Repeat, intervals: Intervals) -> Floats:
    return repeat.evidence.nested.within(intervals.task, intervals.start, intervals.stop)


def _measuring(repeat: Repeat, intervals: Intervals) -> Floats:
    return repeat.evidence.measuring.within(intervals.task, intervals.start, intervals.stop)


def _collections(repeat: Repeat, intervals: Intervals) -> Floats:
    """Time for which garbage was collected: the share for which the process waited for a CPU is no work."""
    seconds = repeat.evidence.collections.within(intervals.place, intervals.start, intervals.stop)
    waited = np.minimum(_starved(repeat, intervals), intervals.seconds)
    return seconds * (1 - waited / np.maximum(intervals.seconds, TICK_S))


def _actors(repeat: Repeat, intervals: Intervals) -> Floats:
    return repeat.evidence.actors.within(np.zeros(len(intervals), np.int64), intervals.start, intervals.stop)


def _paused(repeat: Repeat, intervals: Intervals) -> Floats:
    """Idle time of threads: here the lane is the node of the thread's worker."""
    return repeat.evidence.paused.within(intervals.lane, intervals.start, intervals.stop)


def _starved(repeat: Repeat, intervals: Intervals) -> Floats:
    """Time for which threads that could run waited for a CPU.

    The kernel counts it for the event loop, and for all other threads of a process together; of the client
    only for the one that runs the user's program. What is handed from the event loop to a thread, or back,
    waits for either.
    """
    _, waiting, loop_waiting = _cpu(repeat, intervals)
    threads = np.array([repeat.threads.get(name, 1) for name in repeat.places.nodes], float)
    has_place = intervals.is_cause(LAG, *OF_CLIENT, *OF_CLIENTS_LOOP)
    own = waiting / threads[np.where(has_place, intervals.place, 0)]
    of_either = intervals.is_cause(LAG, *OF_CLIENTS_LOOP)
    handed_over = np.where(of_either, np.maximum(own, loop_waiting), loop_waiting)
    of_tasks = _without_cpu(repeat, intervals, repeat.evidence.shares.starved)
    waited = np.where(intervals.is_cause(*OF_CLIENT), own, handed_over)
    return np.where(intervals.is_cause(COMPUTE), of_tasks, waited)


def _converting(repeat: Repeat, intervals: Intervals) -> Floats:
    """Time for which the event loop of a worker was busy with data that it received or sent."""
    ends, busy = (intervals.place, intervals.start, intervals.stop), repeat.busy
    seconds = repeat.converting.within(*ends)
    if not seconds.any():
        return seconds
    return seconds + busy.within(*ends) - busy.union(repeat.converting).within(*ends)


def _interpreter(repeat: Repeat, intervals: Intervals) -> Floats:
    return _without_cpu(repeat, intervals, repeat.evidence.shares.interpreter)


def _external(repeat: Repeat, intervals: Intervals) -> Floats:
    return np.where(repeat.is_shuffle[intervals.task], 0.0, _waits(repeat, intervals))


def _shuffle(repeat: Repeat, intervals: Intervals) -> Floats:
    return np.where(repeat.is_shuffle[intervals.task], _waits(repeat, intervals), 0.0)


def _waits(repeat: Repeat, intervals: Intervals) -> Floats:
    """Return the time for which tasks used no CPU and nothing else is known that they waited for."""
    shares = repeat.evidence.shares
    explained = shares.starved + shares.interpreter + shares.threads + shares.unknown
    return _without_cpu(repeat, intervals, 1 - explained)


def _external_or_starved(repeat: Repeat, intervals: Intervals) -> Floats:
    return _without_cpu(repeat, intervals, repeat.evidence.shares.unknown)


def _without_cpu(repeat: Repeat, intervals: Intervals, share: Floats) -> Floats:
    """Return a share of the time for which tasks used no CPU and waited for no lock or task of their own."""
    idle = repeat.evidence.shares.idle
    if not len(idle):
        return np.zeros(len(intervals))
    has_task = intervals.task != NONE
    idle_s = np.where(has_task, np.nan_to_num(idle[intervals.task]), 0.0) * intervals.seconds
    explained_s = sum(rule(repeat, intervals) for rule in (_locks, _holding, _nested, _measuring))
    return np.maximum(0.0, idle_s - explained_s) * share[intervals.task]


def _unmetered(repeat: Repeat, intervals: Intervals) -> Floats:
    """Return all seconds of tasks of which nobody knows whether they used a CPU."""
    share = repeat.evidence.shares.idle
    if not len(share):
        return np.zeros(len(intervals))
    is_unknown = (intervals.task != NONE) & np.isnan(share[intervals.task])
    return np.where(is_unknown, intervals.seconds, 0.0)


def _cpu(repeat: Repeat, intervals: Intervals) -> tuple[Floats, Floats, Floats]:
    """Return what each interval's process used of CPUs meanwhile, and what it waited for (see ``CpuUse``).

    A wait that is not known is 0 here.
    """
    figures = np.zeros((3, len(intervals)))
    for node, use in repeat.evidence.cpu.items():
        rows = np.flatnonzero(intervals.place == node)
        figures[:, rows] = use.between(intervals.start[rows], intervals.stop[rows])
    return figures[0], np.nan_to_num(figures[1]), np.nan_to_num(figures[2])


DIVISIONS = (
    Division(AGAIN, (COMPUTE,), _computed_before),
    Division(LOCK, (COMPUTE,), _locks),
    Division(HOLDING, (COMPUTE,), _holding),
    Division(NESTED, (COMPUTE,), _nested),
    Division(MEASURE, (COMPUTE,), _measuring),
    Division(GARBAGE, AT_NODES, _collections),
    Division(STARVED, (*AT_NODES, PLAN, *OF_CLIENT, *OF_CLIENTS_LOOP), _starved),
    Division(SERIALISE, (LAG,), _converting),
    Division(INTERPRETER, (COMPUTE,), _interpreter),
    Division(SHUFFLE, (COMPUTE,), _shuffle),
    Division(EXTERNAL, (COMPUTE,), _external),
    Division(EXTERNAL_OR_STARVED, (COMPUTE,), _external_or_starved),
    Division(UNMETERED, (COMPUTE,), _unmetered),
    Division(ACTOR, (USER, BETWEEN, RESULT, ANSWER, GATHER), _actors),
    Division(
        NO_WORKER, (PLAN, UNDIVIDED, QUEUE, NOTHING, RESULT, ANSWER), without_worker, of_own_worker=True
    ),
    Division(PAUSED, (QUEUE, NOTHING), _paused, of_own_worker=True),
)
