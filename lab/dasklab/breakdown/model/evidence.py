"""Evidence beside the stages of tasks: what else a record knows of the time between two moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Floats, Mask
from dasklab.breakdown.model.interval_sets import NO_INTERVALS, IntervalSets

NO_ROWS = np.zeros(0, np.int64)
NO_FLOATS = np.zeros(0)


@dataclass(frozen=True)
class CpuUse:
    """How much CPU a process has had, and waited for, until some times (seconds, ever growing).

    Attributes:
        cpu_s: of all its threads.
        waiting_s: of all its threads but the event loop's.
        loop_waiting_s: of the event loop's thread.
        loop_cpu_s: of the event loop's thread alone; NaN in records of earlier versions.
        held_s: for how long threads held the interpreter; likewise.
        machine_s: of all programs of its machine; likewise.
        machine, cpus: a name of that machine, and the number of its CPUs; empty and 0 if unknown.

    Only ``cpu_s`` is known where the system does not give the figures of threads; the others are NaN there.
    """

    time: Floats
    cpu_s: Floats
    waiting_s: Floats
    loop_waiting_s: Floats
    loop_cpu_s: Floats
    held_s: Floats
    machine_s: Floats
    machine: str = ""
    cpus: int = 0

    def between(self, start: Floats, stop: Floats) -> tuple[Floats, Floats, Floats]:
        """Return for the time between two moments the three figures, interpolated."""
        return (
            self._rise(self.cpu_s, start, stop),
            self._rise(self.waiting_s, start, stop),
            self._rise(self.loop_waiting_s, start, stop),
        )

    def held_between(self, start: Floats, stop: Floats) -> Floats:
        """Return for how long threads held the interpreter between two moments, interpolated."""
        return self._rise(self.held_s, start, stop)

    def loop_between(self, start: Floats, stop: Floats) -> Floats:
        """Return the CPU time of the event loop between two moments, interpolated."""
        return self._rise(self.loop_cpu_s, start, stop)

    def machine_between(self, start: Floats, stop: Floats) -> Floats:
        """Return the CPU time of all programs of its machine between two moments, interpolated."""
        return self._rise(self.machine_s, start, stop)

    def _rise(self, total: Floats, start: Floats, stop: Floats) -> Floats:
        return np.asarray(np.interp(stop, self.time, total) - np.interp(start, self.time, total))


@dataclass(frozen=True)
class IdleShares:
    """For how long tasks used no CPU, and why; a row per task.

    Attributes:
        idle: which share of the time of its kind no CPU was used; NaN if unknown.
        starved, interpreter, threads, unknown: which shares of that time, without waits for locks and tasks
            of its own, it waited for a CPU, for the interpreter, for threads of its own that computed, and
            for a CPU or something else. The rest is something outside.
    """

    idle: Floats
    starved: Floats
    interpreter: Floats
    threads: Floats
    unknown: Floats

    def select(self, rows: Mask) -> IdleShares:
        return IdleShares(*(getattr(self, column.name)[rows] for column in fields(self)))


NO_SHARES = IdleShares(*[NO_FLOATS] * 5)


@dataclass(frozen=True)
class StackSample:
    """What a thread was doing when it was looked at; see the table ``stacks``.

    Attributes:
        seconds: how much time before that it stands for.
        frames: name (file:line), the outermost first.
    """

    node: int
    time: float
    seconds: float
    reason: str
    key: str
    activity: str
    name: str
    frames: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """What refines causes.

    Attributes:
        locks: when tasks (by row) waited for a lock, semaphore, queue or event.
        holding: when tasks (by row) held a lock that others waited for.
        measuring: when the results of tasks (by row) were measured, in the tasks' threads.
        nested: when tasks (by row) waited for tasks of their own.
        collections: when processes (by node) collected garbage.
        paused: when workers (by node) were paused.
        away: when workers (by node) were gone, to come back later, or because they had died.
        no_worker: when no worker was there; one set, of member 0.
        actors: when actors were at work; one set, of member 0.
        cpu: use of CPU, by node.
        shares: for each task what it waited for while it used no CPU; none where nothing is known of it.
        stacks: samples of late event loops and of waiting tasks.
        again: rows of tasks whose result had been computed before.
    """

    locks: IntervalSets = NO_INTERVALS
    holding: IntervalSets = NO_INTERVALS
    measuring: IntervalSets = NO_INTERVALS
    nested: IntervalSets = NO_INTERVALS
    collections: IntervalSets = NO_INTERVALS
    paused: IntervalSets = NO_INTERVALS
    away: IntervalSets = NO_INTERVALS
    no_worker: IntervalSets = NO_INTERVALS
    actors: IntervalSets = NO_INTERVALS
    cpu: Mapping[int, CpuUse] = field(default_factory=dict)
    shares: IdleShares = NO_SHARES
    stacks: Sequence[StackSample] = ()
    again: Codes = field(default_factory=lambda: NO_ROWS)
