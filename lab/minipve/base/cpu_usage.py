"""Processors in use by a guest, computed from two readings of its processor time."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass

_INTERVAL_S = 2.0


@dataclass(frozen=True)
class _Reading:
    """A reading of a process: its time, the processor seconds used until then, the processors in use."""

    pid: int
    at_s: float
    used_s: float
    processors: float = 0.0


_readings: dict[Hashable, _Reading] = {}


def processors(key: Hashable, pid: int, uptime_s: float, used_s: float) -> float:
    """Return the processors in use since the previous reading, or since the start for the first one."""
    now, last = time.monotonic(), _readings.get(key)
    if last is None or last.pid != pid:
        last = _Reading(pid, now - uptime_s, 0.0)
    elif now - last.at_s < _INTERVAL_S:
        return last.processors
    in_use = (used_s - last.used_s) / (now - last.at_s)
    _readings[key] = _Reading(pid, now, used_s, in_use)
    return in_use
