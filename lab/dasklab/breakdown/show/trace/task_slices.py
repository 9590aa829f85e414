"""When each task ran on its thread, from the intervals of the thread's time breakdown.

While a task runs, its thread may collect garbage or wait for the interpreter: such intervals lie inside the
time of the task. What lies before the task's start is waiting, and belongs to no slice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.model.arrays import NONE, Codes, Floats, Mask
from dasklab.breakdown.model.intervals import TICK_S, Intervals
from dasklab.breakdown.model.repeat import Repeat


@dataclass(frozen=True)
class TaskSlices:
    """One row for each task that ran, in order of threads and time.

    Attributes:
        parts: all intervals of all tasks.
        first: where the parts of each task begin; the last entry is their number.
    """

    parts: Intervals
    first: Codes

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def task(self) -> Codes:
        """The rows of the repeat's tasks."""
        return self.parts.task[self.first[:-1]]

    @property
    def lane(self) -> Codes:
        """The thread of each task."""
        return self.parts.lane[self.first[:-1]]

    @property
    def start(self) -> Floats:
        return self.parts.start[self.first[:-1]]

    @property
    def stop(self) -> Floats:
        return self.parts.stop[self.first[1:] - 1]

    def parts_of(self, row: int) -> range:
        """Return the positions of a task's intervals."""
        return range(int(self.first[row]), int(self.first[row + 1]))


def is_running(repeat: Repeat, intervals: Intervals) -> Mask:
    """Whether each interval of the threads lies within the repeat of its task."""
    task = np.maximum(intervals.task, 0)
    if not len(repeat.tasks):
        return np.zeros(len(intervals), bool)
    has_begun = intervals.start >= repeat.tasks.start[task] - TICK_S
    goes_on = intervals.stop <= repeat.tasks.stop[task] + TICK_S
    return np.asarray((intervals.task != NONE) & has_begun & goes_on, bool)


def task_slices(repeat: Repeat, intervals: Intervals) -> TaskSlices:
    """Return the time of each task on its thread, as one stretch.

    Args:
        intervals: all intervals of all threads, in order (``threads.break_down``).
    """
    parts = intervals.select(is_running(repeat, intervals))
    follows = (parts.task[1:] == parts.task[:-1]) & (parts.lane[1:] == parts.lane[:-1])
    first = np.flatnonzero(np.append(True, ~follows)[: len(parts)])
    return TaskSlices(parts, np.append(first, len(parts)))
