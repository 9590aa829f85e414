"""The time breakdown: every second of every thread of a run, from start to end, with exactly one cause."""

from __future__ import annotations

import numpy as np

from dasklab.breakdown.causes import COMPUTE, DISK
from dasklab.breakdown.idle import IdleReasons
from dasklab.breakdown.intervals import Codes, Floats, Intervals, Windows, concatenate
from dasklab.breakdown.matching import running_max
from dasklab.breakdown.run import NONE, Run
from dasklab.breakdown.timeline import explain_before, origins


def break_down(run: Run) -> Intervals:
    """Return the intervals of all threads: without gaps and without overlaps, sorted.

    ``lane`` is the thread's position in ``run.thread_rows``.
    """
    tasks = run.tasks
    lane, threads = run.thread_rows
    task = np.lexsort((tasks.start, lane))
    lane = lane[task]
    end = np.minimum(np.maximum(running_max(lane, tasks.stop[task]), run.start), run.stop)
    first = np.append(True, lane[1:] != lane[:-1]) if len(lane) else np.zeros(0, bool)
    free = np.where(first, run.start, np.append(0.0, end[:-1])[: len(end)])  # the thread, since then
    begin = np.clip(tasks.start[task], free, run.stop)
    computing = Windows(task, np.full(len(task), run.start), np.full(len(task), run.stop), lane)
    here = tasks.worker[task]
    computing.add(np.arange(len(task)), begin, np.minimum(tasks.stop[task], run.stop), COMPUTE, here)
    last_end = np.full(len(threads), run.start)
    np.maximum.at(last_end, lane, end)
    worker = np.array([run.node(name) for name, _ in threads], np.int64)
    return concatenate(
        [
            computing.intervals(),
            _before(run, task, free, begin, lane),
            _after(run, worker, last_end),
        ]
    ).in_order()


def _before(run: Run, task: Codes, start: Floats, stop: Floats, lane: Codes) -> Intervals:
    """Explain the gaps before tasks: idle until the task's timeline begins, then the timeline."""
    gap = stop > start
    task, start, stop, lane = task[gap], start[gap], stop[gap], lane[gap]
    begin = np.clip(origins(run).begin[task], start, stop)
    # Dask reports only how long a disk took for a task: it is the last part of the timeline
    read = np.maximum(begin, stop - run.tasks.disk_s[task])
    rows, worker = np.arange(len(task)), run.tasks.worker[task]
    idle = Windows(task, start, begin, lane)
    IdleReasons(run).explain(idle, rows, worker, start, begin)
    waiting = Windows(task, begin, read, lane)
    explain_before(run, waiting)
    disk = Windows(task, read, stop, lane)
    disk.add(rows, read, stop, DISK, worker)
    return concatenate([idle.intervals(), waiting.intervals(), disk.intervals()])


def _after(run: Run, worker: Codes, start: Floats) -> Intervals:
    """Explain the end of each thread, after its last task."""
    rows, stop = np.arange(len(worker)), np.full(len(worker), run.stop)
    windows = Windows(np.full(len(worker), NONE), start, stop, rows)
    IdleReasons(run).explain(windows, rows, worker, start, stop)
    return windows.intervals()
