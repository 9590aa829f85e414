"""The time breakdown: every second of every thread of a repeat, from start to end, with exactly one cause."""

from __future__ import annotations

import numpy as np

from dasklab.breakdown.assign.idle import IdleReasons
from dasklab.breakdown.assign.refine import refine
from dasklab.breakdown.assign.timeline import explain_before, timeline_starts
from dasklab.breakdown.model.arrays import NONE, Codes, Floats, running_max
from dasklab.breakdown.model.causes import COMPUTE, DISK
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.intervals import Intervals, Windows, concatenate
from dasklab.breakdown.model.repeat import Repeat


def break_down(repeat: Repeat) -> Intervals:
    """Return the intervals of all threads: without gaps and without overlaps, sorted.

    ``lane`` is the thread's position in ``Repeat.thread_rows``. A thread exists while its worker is in the
    cluster, or is missing there.
    """
    worker = np.array([repeat.node(name) for name, _ in repeat.thread_rows[1]], np.int64)
    return refine(repeat, _by_stages(repeat, worker), worker)


def _by_stages(repeat: Repeat, worker: Codes) -> Intervals:
    """Return what the stages of tasks say of all threads, in no order.

    Args:
        worker: for each thread the node of its worker.
    """
    tasks, (lane, _) = repeat.tasks, repeat.thread_rows
    thread_start, thread_stop = existence(repeat)
    task = np.lexsort((tasks.start, lane))
    lane = lane[task]
    earliest, latest = thread_start[lane], thread_stop[lane]
    stop = np.clip(running_max(lane, tasks.freed[task]), earliest, latest)
    is_first = np.append(True, lane[1:] != lane[:-1])[: len(lane)]
    free = np.where(is_first, earliest, np.append(0.0, stop[:-1])[: len(stop)])  # when the thread became free
    start = np.clip(tasks.start[task], free, latest)
    computing = Windows(task, earliest, latest, lane)
    computing.add(np.arange(len(task)), start, tasks.freed[task], COMPUTE, tasks.worker[task])
    idle_start = thread_start.copy()
    np.maximum.at(idle_start, lane, stop)
    before = _before(repeat, task, free, start, lane)
    windows = [computing, *before, _after(repeat, worker, idle_start, thread_stop)]
    return concatenate([part for some in windows for part in some.parts])


def existence(repeat: Repeat) -> tuple[Floats, Floats]:
    """Return from when until when each thread existed, within the repeat."""
    joined, left = (
        np.array([moments.get(name, default) for name, _ in repeat.thread_rows[1]], float)
        for moments, default in ((repeat.joined, repeat.start), (repeat.left, repeat.stop))
    )
    away = repeat.evidence.away
    missing = {
        repeat.places.nodes[node]: time
        for node, time in zip(away.member.tolist(), away.stop.tolist(), strict=True)  # in their order
    }
    left = np.maximum(left, [missing.get(name, -np.inf) for name, _ in repeat.thread_rows[1]])
    thread_start = np.clip(joined, repeat.start, repeat.stop)
    return thread_start, np.clip(left, thread_start, repeat.stop)


def without_threads(repeat: Repeat) -> Intervals:
    """Return the intervals of a repeat in which no thread existed, with the reasons why nothing ran."""
    thread_start, thread_stop = existence(repeat)
    existing = IntervalSets(np.zeros(len(thread_start), np.int64), thread_start, thread_stop)
    start, stop = np.append(repeat.start, existing.stop), np.append(existing.start, repeat.stop)
    some = stop > start
    start, stop = start[some], stop[some]
    rows = np.arange(len(start))
    windows = Windows(np.full(len(rows), NONE), start, stop, rows)
    IdleReasons(repeat).explain(windows, rows, np.full(len(rows), NONE), start, stop)
    return refine(repeat, windows.intervals())


def _before(repeat: Repeat, task: Codes, start: Floats, stop: Floats, lane: Codes) -> list[Windows]:
    """Explain the gaps before tasks: idle until the task's timeline begins, then the timeline."""
    gap = stop > start
    task, start, stop, lane = task[gap], start[gap], stop[gap], lane[gap]
    timeline_start = np.clip(timeline_starts(repeat).start[task], start, stop)
    # Dask reports only how long a disk took for a task: it is the last part of the timeline
    read = np.maximum(timeline_start, stop - repeat.tasks.disk_s[task])
    rows, worker = np.arange(len(task)), repeat.tasks.worker[task]
    idle = Windows(task, start, timeline_start, lane)
    IdleReasons(repeat).explain(idle, rows, worker, start, timeline_start)
    waiting = Windows(task, timeline_start, read, lane)
    explain_before(repeat, waiting)
    disk = Windows(task, read, stop, lane)
    disk.add(rows, read, stop, DISK, worker)
    return [idle, waiting, disk]


def _after(repeat: Repeat, worker: Codes, start: Floats, stop: Floats) -> Windows:
    """Explain the end of each thread, after its last task."""
    rows = np.arange(len(worker))
    windows = Windows(np.full(len(worker), NONE), start, stop, rows)
    IdleReasons(repeat).explain(windows, rows, worker, start, stop)
    return windows
