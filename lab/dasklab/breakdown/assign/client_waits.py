"""When the user's program waited for tasks: calls during which the scheduler handled the end of one.

A call that returned without such an end (a gather of results that were there, a scatter) waited for no task.
A line in which the program waited counts as a call: ``as_completed`` waits in no other way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.model.arrays import NONE, Codes, Floats, Mask
from dasklab.breakdown.model.repeat import Repeat

CLOCK_S = 0.001  # the client's clock may be off by this when its calls are compared with each other
LATE_SHARE, MAX_LATE_S = 0.25, 0.05  # of a call: the scheduler's stamp of an end may be this much after it


@dataclass(frozen=True)
class ClientWaits:
    """Calls that waited for tasks, in the order in which they returned.

    Attributes:
        start: when each began.
        returned: when each returned, in ascending order.
        task: row of the last task that it waited for.
        handled: when the scheduler had handled the end of that task, at the latest when the call returned.
    """

    start: Floats
    returned: Floats
    task: Codes
    handled: Floats

    def before(self, time: Floats) -> tuple[Codes, Floats]:
        """Return the last task that was waited for by some times; ``NONE`` and minus infinity without one."""
        position = np.searchsorted(self.returned, time + CLOCK_S, side="right") - 1
        return np.append(self.task, NONE)[position], np.append(self.handled, -np.inf)[position]


def client_waits(repeat: Repeat) -> ClientWaits:
    """Return the calls of the user's program that waited for its tasks."""
    calls, lines = repeat.calls.of_kind("sync", "wait"), repeat.lines
    start = np.concatenate([calls[0], lines.start[lines.waits]])
    stop = np.concatenate([calls[1], lines.stop[lines.waits]])
    order = np.argsort(stop, kind="stable")
    is_call = order < len(calls[0])
    start, stop = start[order], stop[order]
    late = CLOCK_S + np.minimum(MAX_LATE_S, LATE_SHARE * (stop - start))
    task, handled = last_handled(repeat, stop + late, repeat.is_users)
    in_time, handled_in_time = last_handled(repeat, stop + CLOCK_S, repeat.is_users)
    # a task that was still running when the call returned is one that was sent after it
    is_next = np.append(repeat.tasks.stop, -np.inf)[task] > stop + np.where(is_call, CLOCK_S, late)
    task, handled = np.where(is_next, in_time, task), np.where(is_next, handled_in_time, handled)
    waited = (task != NONE) & (handled >= start - CLOCK_S)
    return ClientWaits(start[waited], stop[waited], task[waited], np.minimum(handled, stop)[waited])


def last_handled(repeat: Repeat, time: Floats, among: Mask) -> tuple[Codes, Floats]:
    """Return for some times the last of some tasks whose end the scheduler had handled, and when it had.

    ``NONE`` and minus infinity where there is none.
    """
    order = repeat.tasks.handled_order
    order = order[among[order]]
    position = np.searchsorted(repeat.tasks.handled[order], time, side="right") - 1
    task = np.append(order, NONE)[position]  # NONE is the last position, of what stands for no task
    return task, np.append(repeat.tasks.handled, -np.inf)[task]
