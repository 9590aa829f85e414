"""Load over time, PVE's ``rrddata``: here of one hour, in memory, a sample a minute.

There is a row for every step of the frame asked for; one of which nothing is known has only its time.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Collection, Mapping

PERIOD_S = 60
KEPT = 60
FRAMES = {  # PVE's steps (seconds) and how many of them
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
        self._samples: defaultdict[str, deque[tuple[float, Values]]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._counted: dict[str, tuple[float, Mapping[str, float]]] = {}

    def add(
        self, now: float, name: str, gauges: Mapping[str, float], counters: Mapping[str, float] | None = None
    ) -> None:
        """One sample; of ``counters`` the growth a second is kept, unless they were set back meanwhile."""
        with self._lock:
            then, before = self._counted.get(name, (now, {}))
            grown = {k: (v - before[k]) / (now - then) for k, v in (counters or {}).items() if k in before}
            self._counted[name] = (now, counters or {})
            self._samples[name].append((now, dict(gauges) | {k: v for k, v in grown.items() if v >= 0}))

    def keep(self, names: Collection[str]) -> None:
        """Forget all but these."""
        with self._lock:
            for gone in self._samples.keys() - set(names):
                del self._samples[gone]
                self._counted.pop(gone, None)

    def rows(self, name: str, frame: str, cf: str, now: float) -> list[Values]:
        """The rows of a frame, oldest first; ``cf`` says whether a step shows its AVERAGE or its MAX."""
        step, count = FRAMES[frame]
        end = int(now // step) * step
        with self._lock:
            samples = list(self._samples[name]) if name in self._samples else []
        found: defaultdict[int, list[Values]] = defaultdict(list)
        for at, values in samples:
            found[int(at // step) * step].append(values)
        starts = range(end - step * (count - 1), end + step, step)
        return [{"time": start} | _consolidated(found.get(start, []), cf) for start in starts]


def _consolidated(samples: list[Values], cf: str) -> Values:
    keys = {key for values in samples for key in values}
    columns = {key: [values[key] for values in samples if key in values] for key in keys}
    return {
        key: max(column) if cf == "MAX" else sum(column) / len(column)
        for key, column in sorted(columns.items())
    }
