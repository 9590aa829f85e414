"""What tasks waited for while they used no CPU: a CPU, the interpreter, their own threads, or something else.

Dask meters the CPU time of the thread that runs a task. The kernel meters the process: what all its threads
used, and for how long they waited for a CPU, four times a second. Both are summed up for all tasks of a kind
on a worker, because short tasks lie between two samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Floats
from dasklab.breakdown.model.evidence import CpuUse, IdleShares
from dasklab.breakdown.model.interval_sets import IntervalSets

MOSTLY = 0.5  # of the time without a CPU: what explains more of it explains all, because of the sampling
NEARLY = 0.7  # of the time without a CPU: so much CPU time of other threads explains it
LITTLE = 0.1  # of the time without a CPU: a shorter wait for a CPU explains none of the rest
COMPUTES = 0.2  # share of its time for which a task uses a CPU, so that a lack of CPUs makes it longer
COMPETES = 0.05  # share of its time for which a task that waits for the interpreter uses a CPU
KEPT = 0.2  # share of the time of tasks: timers alone keep an event loop from running for less
BLOCKED_S = 0.02  # an event loop that is busy for less was not blocked
ALONE = 1.1  # tasks of a process at once, in the mean: each mostly ran alone
ALWAYS = 0.8  # of the time of tasks, and of that for which their event loop was blocked
POLL_S = 0.005  # for how long a thread sleeps at most that waits for the interpreter
LEAST_METERED_S = 0.5  # of the time of tasks: the samples do not show what less of it was


@dataclass(frozen=True)
class Spans:
    """When tasks ran; a row per task.

    Attributes:
        worker: codes of nodes.
        kind: what each computes, as a number.
        explained_s: for how long it waited for locks or tasks of its own.
        cpu_s, waited_s, turns: for how long its thread ran and waited for a CPU, and how often it was put on
            one; NaN in records of earlier versions.
    """

    worker: Codes
    kind: Codes
    start: Floats
    stop: Floats
    explained_s: Floats
    cpu_s: Floats
    waited_s: Floats
    turns: Floats

    @property
    def seconds(self) -> Floats:
        return np.maximum(self.stop - self.start, 0.0)


def idle_shares(
    tasks: Spans,
    metered: Floats,
    cpu: Mapping[int, CpuUse],
    busy: IntervalSets,
    late: IntervalSets,
) -> IdleShares:
    """Divide the time for which tasks used no CPU.

    Args:
        metered: which share of the time of each task's kind Dask saw no CPU time; NaN if it did not meter it.
        busy, late: when event loops were busy, and when they were kept from running.
    """
    shares = metered.copy()
    nothing = np.zeros(len(metered))
    result = IdleShares(shares, nothing.copy(), nothing.copy(), nothing.copy(), nothing.copy())
    for node, use in cpu.items():
        of_worker = np.flatnonzero(tasks.worker == node)
        process = _Process(node, tasks, of_worker, use, busy, late)
        for kind in np.unique(tasks.kind[of_worker]).tolist():
            rows = of_worker[(tasks.kind[of_worker] == kind) & np.isnan(metered[of_worker])]
            if len(rows):
                shares[rows] = process.idle_share(rows, metered)
        for kind in np.unique(tasks.kind[of_worker]).tolist():
            rows = of_worker[(tasks.kind[of_worker] == kind) & ~np.isnan(shares[of_worker])]
            if len(rows):
                process.divide(rows, shares, result)
    return result


@dataclass(frozen=True)
class _Process:
    """A worker's process, and the tasks that ran in it (``rows``)."""

    node: int
    tasks: Spans
    rows: Codes
    use: CpuUse
    busy: IntervalSets
    late: IntervalSets

    def idle_share(self, rows: Codes, metered: Floats) -> float:
        """Return which share of their time some tasks used no CPU, by what the process used; NaN if unknown.

        What is left of the process's CPU time belongs to the tasks that Dask did not meter.
        """
        time, cpu_s = self.use.time, self.use.cpu_s
        if not len(time):
            return np.nan
        start = np.clip(self.tasks.start[rows], time[0], time[-1])
        stop = np.clip(self.tasks.stop[rows], time[0], time[-1])
        seconds = float((stop - start).sum())
        if seconds < max(LEAST_METERED_S, MOSTLY * float(self.tasks.seconds[rows].sum())):
            return np.nan
        used_s = float((np.interp(stop, time, cpu_s) - np.interp(start, time, cpu_s)).sum())
        used_s -= self._loop_s(start, stop)
        of_metered = self.rows[~np.isnan(metered[self.rows])]
        of_others = self.rows[np.isnan(metered[self.rows])]
        used_s -= self._overlap(of_metered, 1 - metered[of_metered], start, stop)
        alike = self._overlap(of_others, np.ones(len(of_others)), start, stop) / seconds
        return 1 - float(np.clip(used_s / max(alike, 1.0) / seconds, 0.0, 1.0))

    def divide(self, rows: Codes, shares: Floats, result: IdleShares) -> None:
        """Set what some tasks of a kind waited for, as shares of the time for which they used no CPU."""
        tasks, start, stop = self.tasks, self.tasks.start[rows], self.tasks.stop[rows]
        seconds = float(tasks.seconds[rows].sum())
        idle_s = float((shares[rows] * tasks.seconds[rows]).sum() - tasks.explained_s[rows].sum())
        if idle_s <= 0 or seconds <= 0:
            return
        own_s = seconds - float((shares[rows] * tasks.seconds[rows]).sum())
        process_s, waiting_s, loop_waiting_s = (
            float(figure.sum()) for figure in self.use.between(start, stop)
        )
        at_once = max(1.0, self._overlap(self.rows, np.ones(len(self.rows)), start, stop) / seconds)
        others = np.nan_to_num(1 - shares[self.rows], nan=1.0)
        others_s = max(0.0, self._overlap(self.rows, others, start, stop) - own_s)
        kept_s = float(self._within(self.late, start, stop).sum()) - np.nan_to_num(loop_waiting_s)
        threads_s = (process_s - own_s - others_s - self._loop_s(start, stop)) / at_once
        starved = np.nan_to_num(waiting_s) / at_once / idle_s
        starved = 1.0 if starved > MOSTLY else starved
        rest_s = (1 - starved) * idle_s
        is_kept = kept_s > max(MOSTLY * rest_s, KEPT * seconds) or self._is_blocked(start, stop)
        if (is_kept or at_once > ALONE) and self._polls(rows, at_once):
            result.starved[rows] = min(1.0, self._holder_starved_s(rows, at_once, process_s) / idle_s)
            result.interpreter[rows] = 1 - result.starved[rows]
            return
        if at_once < ALONE and starved > LITTLE:  # nobody but the event loop could hold the interpreter
            is_kept = False
        # who holds the interpreter may wait for a CPU meanwhile
        held_s = others_s + np.nan_to_num(waiting_s) * (1 - 1 / at_once)
        is_crowded = held_s > NEARLY * rest_s and own_s > COMPETES * seconds
        result.starved[rows] = starved
        is_sampled = seconds > LEAST_METERED_S
        if is_sampled and threads_s > NEARLY * rest_s and not is_kept:
            result.threads[rows] = 1 - starved
        elif is_sampled and (is_kept or is_crowded):
            result.interpreter[rows] = 1 - starved
        elif np.isnan(waiting_s) or (starved > LITTLE and own_s > COMPUTES * seconds):
            result.unknown[rows] = 1 - starved

    def _slept_s(self, rows: Codes) -> float:
        """Return for how long the threads of some tasks were asleep, for no known reason; NaN if unknown."""
        tasks = self.tasks
        could_run_s = tasks.cpu_s[rows] + tasks.waited_s[rows]
        return float((tasks.seconds[rows] - could_run_s - tasks.explained_s[rows]).sum())

    def _polls(self, rows: Codes, at_once: float) -> bool:
        """Return whether some tasks ran while the interpreter was held, and slept only to wait for it.

        A thread that waits for it wakes again and again, and queues for a CPU each time, which the kernel
        counts. One that lacks only a CPU does not sleep; one that waits for something else sleeps for longer.
        """
        start, stop = self.tasks.start[rows], self.tasks.stop[rows]
        seconds, slept_s = float(self.tasks.seconds[rows].sum()), self._slept_s(rows)
        held_s = float(self.use.held_between(start, stop).sum())
        polled_s = POLL_S * float(self.tasks.turns[rows].sum())
        is_held = seconds > LEAST_METERED_S and held_s > ALWAYS * seconds
        return is_held and slept_s > COMPETES * seconds and polled_s > MOSTLY * slept_s * (1 - 1 / at_once)

    def _holder_starved_s(self, rows: Codes, at_once: float, process_s: float) -> float:
        """Return for how long those tasks waited for a CPU that held the interpreter, one at a time.

        Args:
            process_s: what the process had of CPUs while they ran.
        """
        seconds = float(self.tasks.seconds[rows].sum())
        holder_slept_s = self._slept_s(rows) - seconds * (1 - 1 / at_once)
        if holder_slept_s > MOSTLY * seconds / at_once:
            return 0.0
        return min(float(self.tasks.waited_s[rows].sum()), max(0.0, seconds - process_s) / at_once)

    def _loop_s(self, start: Floats, stop: Floats) -> float:
        """Return the CPU time of the event loop.

        Where nobody recorded it, it got the same part of what it could use as others.
        """
        known_s = float(self.use.loop_between(start, stop).sum())
        if not np.isnan(known_s):
            return known_s
        used_s, *waited_s = (float(np.nansum(figure)) for figure in self.use.between(start, stop))
        ran_s = float((self._within(self.busy, start, stop) - self._within(self.late, start, stop)).sum())
        return min(used_s, ran_s * used_s / max(used_s + sum(waited_s), 1e-9))

    def _is_blocked(self, start: Floats, stop: Floats) -> bool:
        """Return whether the event loop was blocked while some tasks ran, without a CPU, and only then.

        Code that waits without giving the interpreter back does this. What blocks the event loop itself also
        does it at other times.
        """
        ran = IntervalSets(np.full(len(start), self.node), start, stop)
        ran_s = ran.total_s
        busy_s = self.busy.stop - self.busy.start
        blocked = (self.busy.member == self.node) & (busy_s > BLOCKED_S)
        during_s = float(self._within(ran, self.busy.start[blocked], self.busy.stop[blocked]).sum())
        figures = self.use.between(ran.start, ran.stop)
        used_s, _, loop_waiting_s = (float(np.nansum(figure)) for figure in figures)
        is_always = during_s > ALWAYS * max(ran_s, float(busy_s[blocked].sum()))
        return is_always and used_s + loop_waiting_s < MOSTLY * during_s

    def _within(self, sets: IntervalSets, start: Floats, stop: Floats) -> Floats:
        return sets.within(np.full(len(start), self.node), start, stop)

    def _overlap(self, rows: Codes, rate: Floats, start: Floats, stop: Floats) -> float:
        """Return the sum, over some stretches of time, of what tasks did then at a rate per second."""
        ends = np.concatenate([self.tasks.start[rows], self.tasks.stop[rows]])
        order = np.argsort(ends, kind="stable")
        time, slope = ends[order], np.cumsum(np.concatenate([rate, -rate])[order])
        if not len(time):
            return 0.0
        total = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(time))])
        return float((np.interp(stop, time, total) - np.interp(start, time, total)).sum())
