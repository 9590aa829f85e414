"""When the user's program waited for tasks: calls during which the scheduler handled the end of one.

A call that returned without such an end (a scatter), or whose results were there, waited for no task.
A call that gathered results waited for no task that ended after it had begun to gather. A line in which the
program waited counts as a call as far as no call was recorded: ``as_completed`` waits in no other way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.model.arrays import NONE, Codes, Floats, Mask
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.repeat import Repeat

Span = tuple[Floats, Floats]
CALLS = ("sync", "wait")
CLOCK_S = 0.001  # the client's clock may be off by this when its calls are compared with each other
SAMPLED_S = 0.05  # between two looks at the user's line
LATE_SHARE, MAX_LATE_S = 0.25, 0.05  # of a call: the scheduler's stamp of an end may be this much after it


@dataclass(frozen=True)
class ClientWaits:
    """Calls that waited for tasks, in the order in which they returned.

    Attributes:
        start: when each gather_start.
        returned: when each returned, in ascending order.
        task: row of the last task that it waited for.
        handled: when the scheduler had handled the end of that task, at the latest when the call returned.
        is_cut: whether the last one had not returned when the repeat ended: more tasks may have been missing.
    """

    start: Floats
    returned: Floats
    task: Codes
    handled: Floats
    is_cut: bool

    def before(self, time: Floats) -> tuple[Codes, Floats]:
        """Return the last task that was waited for by some times; ``NONE`` and minus infinity without one."""
        position = np.searchsorted(self.returned, time + CLOCK_S, side="right") - 1
        return np.append(self.task, NONE)[position], np.append(self.handled, -np.inf)[position]


def client_waits(repeat: Repeat) -> ClientWaits:
    """Return the calls of the user's program that waited for its tasks."""
    calls = repeat.calls.of_kind(*CALLS)
    lines, before_call = _between_calls(repeat, calls)
    start = np.concatenate([calls[0], lines[0]])
    returned = np.concatenate([calls[1], lines[1]])
    end = np.concatenate([_gathered_from(repeat, *calls), lines[1]])
    is_exact = np.concatenate([np.ones(len(calls[0]), bool), before_call])
    has_all = np.concatenate([repeat.calls.missing_of(*CALLS) == 0, np.zeros(len(lines[0]), bool)])
    order = np.argsort(returned, kind="stable")
    start, returned, is_exact, has_all = start[order], returned[order], is_exact[order], has_all[order]
    stop = np.minimum(returned, repeat.stop)
    end = np.minimum(end[order], stop)
    late = CLOCK_S + np.minimum(MAX_LATE_S, LATE_SHARE * (end - start))
    is_cut = bool(returned.max(initial=-np.inf) > repeat.stop + CLOCK_S)
    tasks = repeat.tasks  # nobody waits for what goes on after the block, or after it was cancelled
    runs_on = ~tasks.has_result & ((tasks.stop >= repeat.stop) | (tasks.stop > tasks.handled))
    among = repeat.is_users & (is_cut | ~runs_on)
    task, handled = last_handled(repeat, end + late, among)
    in_time, handled_in_time = last_handled(repeat, end + CLOCK_S, among)
    # a task that was still running when the call returned is one that was sent after it
    is_next = np.append(repeat.tasks.stop, -np.inf)[task] > end + np.where(is_exact, CLOCK_S, late)
    # of tasks that ended shortly before it gathered, those count whose end was handled by then
    is_next |= (end < stop) & (handled_in_time >= start)
    task, handled = np.where(is_next, in_time, task), np.where(is_next, handled_in_time, handled)
    waited = (task != NONE) & (handled >= start - CLOCK_S) & ~has_all
    return ClientWaits(start[waited], stop[waited], task[waited], np.minimum(handled, stop)[waited], is_cut)


def waiting_lines(repeat: Repeat) -> Span:
    """Return when lines waited for the cluster outside of recorded calls."""
    return _between_calls(repeat, repeat.calls.of_kind(*CALLS))[0]


def _between_calls(repeat: Repeat, calls: Span) -> tuple[Span, Mask]:
    """Return when lines waited for the cluster outside of all calls, and which of these times end in a call.

    Lines are sampled, and calls are exact: a short time between the end of a line and that of a call is none.
    """
    lines = repeat.lines
    waiting = _as_set(lines.start[lines.waits], lines.stop[lines.waits])
    every = _as_set(*calls)
    edges = np.unique(
        np.concatenate([lines.start[lines.waits], lines.stop[lines.waits], every.start, every.stop])
    )
    start, stop = edges[:-1], edges[1:]
    nobody, middle = np.zeros(len(start), np.int64), (start + stop) / 2
    is_free = (waiting.within(nobody, start, middle) > 0) & (every.within(nobody, start, middle) == 0)
    before_call = np.isin(stop, every.start)
    is_beside = before_call | np.isin(start, every.stop)
    some = is_free & ~(is_beside & (stop - start < SAMPLED_S))
    return (start[some], stop[some]), before_call[some]


def _as_set(start: Floats, stop: Floats) -> IntervalSets:
    return IntervalSets(np.zeros(len(start), np.int64), start, stop)


def _gathered_from(repeat: Repeat, start: Floats, stop: Floats) -> Floats:
    """Return until when the tasks of each call may have ended: it gathered their results, or returned."""
    gathers = repeat.calls.of_kind("gather")
    order = np.argsort(gathers[1], kind="stable")
    begin, end = gathers[0][order], np.append(gathers[1][order], np.inf)
    last = np.searchsorted(end[:-1], stop + CLOCK_S, side="right") - 1
    gather_start = np.append(begin, -np.inf)[last]
    return np.where(gather_start >= start - CLOCK_S, np.maximum(gather_start, start), stop)


def last_handled(repeat: Repeat, time: Floats, among: Mask) -> tuple[Codes, Floats]:
    """Return for some times the last of some tasks whose end the scheduler had handled, and when it had.

    ``NONE`` and minus infinity where there is none.
    """
    order = repeat.tasks.handled_order
    order = order[among[order]]
    position = np.searchsorted(repeat.tasks.handled[order], time, side="right") - 1
    task = np.append(order, NONE)[position]  # NONE is the last position, of what stands for no task
    return task, np.append(repeat.tasks.handled, -np.inf)[task]
