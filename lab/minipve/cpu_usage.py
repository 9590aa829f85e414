"""How many processors a guest uses, from two looks at the processor seconds that it has used."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass

_LOOK_S = 2.0


@dataclass(frozen=True)
class _Look:
    """When a process was looked at, the processor seconds used by then, the processors in use."""

    pid: int
    at_s: float
    used_s: float
    processors: float = 0.0


_looks: dict[Hashable, _Look] = {}


def processors(key: Hashable, pid: int, uptime_s: float, used_s: float) -> float:
    """Processors in use: since the last look that is old enough to tell, at first since the start."""
    now, last = time.monotonic(), _looks.get(key)
    if last is None or last.pid != pid:
        last = _Look(pid, now - uptime_s, 0.0)
    elif now - last.at_s < _LOOK_S:
        return last.processors
    found = (used_s - last.used_s) / (now - last.at_s)
    _looks[key] = _Look(pid, now, used_s, found)
    return found
