"""A step function of time, such as the number of a worker's tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Floats


@dataclass(frozen=True)
class StepFunction:
    """The value from each time on; 0 before the first. ``time`` is sorted and unique."""

    time: Floats
    value: Codes

    @classmethod
    def from_increments(cls, time: Floats, change: Codes) -> StepFunction:
        """Build a step function from increments, in any order."""
        order = np.argsort(time, kind="stable")
        time, total = time[order], np.cumsum(change[order])
        last = np.append(np.diff(time) > 0, True) if len(time) else np.zeros(0, bool)
        return cls(time[last], total[last])

    def at(self, time: Floats) -> Codes:
        """Return the values at some times."""
        index = np.searchsorted(self.time, time, side="right") - 1
        values = self.value[np.maximum(index, 0)] if len(self.value) else np.zeros(len(time), np.int64)
        return np.where(index >= 0, values, 0)


ZERO = StepFunction(np.zeros(0), np.zeros(0, np.int64))
