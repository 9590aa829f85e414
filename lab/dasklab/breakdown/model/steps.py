"""A step function of time, such as the number of a worker's tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Floats


@dataclass(frozen=True)
class Steps:
    """The value from each time on; 0 before the first. ``time`` is sorted and unique."""

    time: Floats
    value: Codes


NO_STEPS = Steps(np.zeros(0), np.zeros(0, np.int64))


def steps(time: Floats, change: Codes) -> Steps:
    """Build a step function from increments."""
    order = np.argsort(time, kind="stable")
    time, total = time[order], np.cumsum(change[order])
    last = np.append(np.diff(time) > 0, True) if len(time) else np.zeros(0, bool)
    return Steps(time[last], total[last])


def value_at(number: Steps, time: Floats) -> Codes:
    """Return the values of a step function at these times."""
    index = np.searchsorted(number.time, time, side="right") - 1
    values = number.value[np.maximum(index, 0)] if len(number.value) else np.zeros(len(time), np.int64)
    return np.where(index >= 0, values, 0)
