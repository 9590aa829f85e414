"""The critical path: backwards from a run's end, what it waited for, and what that waited for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.causes import CLIENT, COMPUTE
from dasklab.breakdown.idle import IdleReasons
from dasklab.breakdown.intervals import Codes, Floats, Intervals, Windows, concatenate
from dasklab.breakdown.run import CLIENT_CODE, NONE, Run
from dasklab.breakdown.timeline import explain_after, explain_before, origins


@dataclass(frozen=True)
class Chain:
    """The tasks of the path, the last one first.

    Attributes:
        begin: where the explanation of each task begins: at the end of the task that comes before it.
        start: where its computation begins.
        end: where its computation ends.
    """

    task: Codes
    begin: Floats
    start: Floats
    end: Floats


def critical_path(run: Run) -> Intervals:
    """Return the intervals of the path, sorted, without gaps, from the run's start to its end."""
    if not len(run.tasks):
        return _idle(run, run.stop)
    last = int(np.fmax(run.tasks.stamps["handled"], run.tasks.stop).argmax())
    handled = np.clip(run.tasks.handled[[last]], run.start, run.stop)
    result = _windows(np.array([NONE]), handled, np.array([run.stop]))
    result.add(np.zeros(1, np.int64), handled, result.high, CLIENT, np.array([CLIENT_CODE]))
    report = _windows(np.array([last]), np.array([run.start]), handled)
    chain = _follow(run, last, float(explain_after(run, report)[0]))
    rows = np.arange(len(chain.task))
    computing = _windows(chain.task, np.maximum(chain.start, run.start), chain.end)
    computing.add(rows, chain.start, chain.end, COMPUTE, run.tasks.worker[chain.task])
    waiting = _windows(chain.task, np.maximum(chain.begin, run.start), chain.start)
    explain_before(run, waiting)
    parts = [each.intervals() for each in (result, report, computing, waiting)]
    return concatenate([*parts, _idle(run, float(chain.begin[-1]))]).in_order()


def _follow(run: Run, task: int, end: float) -> Chain:
    """Go from trigger to trigger; or to the task that kept the thread, where all else was there before."""
    begin, trigger = (column.tolist() for column in _predecessors(run))
    start = run.tasks.start.tolist()
    chain: dict[int, tuple[float, float, float]] = {}
    while task != NONE and task not in chain and end > run.start:
        first = min(end, start[task])
        before = min(first, begin[task])
        chain[task] = (before, first, end)
        task, end = trigger[task], before
    begins, starts, ends = np.array(list(chain.values()), float).reshape(-1, 3).T
    return Chain(np.array(list(chain), np.int64), begins, starts, ends)


def _predecessors(run: Run) -> tuple[Floats, Codes]:
    """Return where each task's part of a path begins, and the task that comes before."""
    origin, previous = origins(run), run.previous_on_thread
    freed = np.where(previous != NONE, run.tasks.stop[previous], np.nan)
    waited_for_thread = freed > run.tasks.stamps["ready"]
    return (
        np.where(waited_for_thread, freed, origin.begin),
        np.where(waited_for_thread, previous, origin.trigger),
    )


def _idle(run: Run, end: float) -> Intervals:
    """Explain what lies before the first task."""
    nobody, start, stop = np.array([NONE]), np.array([run.start]), np.array([max(run.start, end)])
    windows = _windows(nobody, start, stop)
    IdleReasons(run).explain(windows, np.zeros(1, np.int64), nobody, start, stop)
    return windows.intervals()


def _windows(task: Codes, low: Floats, high: Floats) -> Windows:
    return Windows(task, low, high, np.zeros(len(task), np.int64))
