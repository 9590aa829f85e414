"""Put intervals that overlap into different lanes."""

from __future__ import annotations

import heapq

import numpy as np

from dasklab.breakdown.model.arrays import Codes, Floats


def assign_lanes(row: Codes, start: Floats, stop: Floats) -> Codes:
    """Return the lane of each interval within its row: the lowest one that is free when it begins.

    Args:
        row: intervals of different rows do not meet.
        start, stop: their ends; none ends before it begins.
    """
    result = np.zeros(len(row), np.int64)
    busy: list[tuple[float, int]] = []  # end and lane
    free: list[int] = []
    current, count = None, 0
    for index in np.lexsort((stop, start, row)).tolist():
        if row[index] != current:
            current, count, busy, free = row[index], 0, [], []
        while busy and busy[0][0] <= start[index]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            heapq.heappush(free, count)
            count += 1
        lane = heapq.heappop(free)
        heapq.heappush(busy, (float(stop[index]), lane))
        result[index] = lane
    return result
