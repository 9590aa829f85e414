"""Load over time (PVE's ``rrddata``): one sample per minute, kept in memory for an hour.

An answer has a row for every step of the requested time frame. A row without samples contains only its time.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Collection, Mapping

PERIOD_S = 60
MAX_SAMPLES = 60
FRAMES = {  # name -> (step in seconds, number of steps), as in PVE
    "hour": (60, 60),
    "day": (60, 1440),
    "week": (1800, 336),
    "month": (1800, 1440),
    "year": (21600, 1440),
    "decade": (604800, 570),
}
Values = dict[str, float]


class History:
    """Samples by name (``node``, ``storage``, ``qemu/100``)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: defaultdict[str, deque[tuple[float, Values]]]
        self._samples = defaultdict(lambda: deque(maxlen=MAX_SAMPLES))
        self._counted: dict[str, tuple[float, Mapping[str, float]]] = {}

    def add(
        self, now: float, name: str, gauges: Mapping[str, float], counters: Mapping[str, float] | None = None
    ) -> None:
        """Add a sample. ``counters`` are stored as growth per second, unless they were reset in between."""
        with self._lock:
            then, before = self._counted.get(name, (now, {}))
            grown = {k: (v - before[k]) / (now - then) for k, v in (counters or {}).items() if k in before}
            self._counted[name] = (now, counters or {})
            self._samples[name].append((now, dict(gauges) | {k: v for k, v in grown.items() if v >= 0}))

    def keep(self, names: Collection[str]) -> None:
        """Remove the samples of all other names."""
        with self._lock:
            for name in self._samples.keys() - set(names):
                del self._samples[name]
                self._counted.pop(name, None)

    def rows(self, name: str, frame: str, cf: str, now: float) -> list[Values]:
        """Return the rows of a time frame, oldest first. ``cf`` is how to combine samples: AVERAGE or MAX."""
        step, count = FRAMES[frame]
        end = int(now // step) * step
        with self._lock:
            samples = list(self._samples[name]) if name in self._samples else []
        by_step: defaultdict[int, list[Values]] = defaultdict(list)
        for at, values in samples:
            by_step[int(at // step) * step].append(values)
        starts = range(end - step * (count - 1), end + step, step)
        return [{"time": start} | _consolidated(by_step.get(start, []), cf) for start in starts]


def _consolidated(samples: list[Values], cf: str) -> Values:
    keys = {key for values in samples for key in values}
    columns = {key: [values[key] for values in samples if key in values] for key in keys}
    return {
        key: max(column) if cf == "MAX" else sum(column) / len(column)
        for key, column in sorted(columns.items())
    }
