"""When a process was busy."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class Spells:
    """Times when an event loop was busy, in order and apart."""

    def __init__(self, spells: Iterable[tuple[float, float]] = ()) -> None:
        self.starts: list[float] = []
        self.stops: list[float] = []
        for start, stop in sorted(spells):
            if self.stops and start <= self.stops[-1]:
                self.stops[-1] = max(self.stops[-1], stop)
            elif stop > start:
                self.starts.append(start)
                self.stops.append(stop)

    def around(self, time: float) -> tuple[float, float]:
        """The spell that a time lies in; where there is none, that time."""
        index = bisect_left(self.starts, time) - 1
        if index >= 0 and self.stops[index] >= time:
            return self.starts[index], self.stops[index]
        return time, time

    def within(self, start: float, stop: float) -> float:
        """Seconds of a stretch of time that were busy."""
        first = max(0, bisect_left(self.starts, start) - 1)
        last = bisect_left(self.starts, stop)
        spells = zip(self.starts[first:last], self.stops[first:last], strict=True)
        return sum(max(0.0, min(end, stop) - max(begin, start)) for begin, end in spells)
