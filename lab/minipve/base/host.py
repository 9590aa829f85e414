"""The machine that minipve runs on, read from /proc, in the form in which PVE reports a node."""

from __future__ import annotations

import os
import platform
import shutil
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

# The machine that minipve runs on, read from /proc, in the form in which PVE reports a node.

PRESSURES = (
    "pressurecpusome", "pressurecpufull", "pressureiosome", "pressureiofull", "pressurememorysome",
    "pressurememoryfull",
)  # fmt: skip
"""Keys of a running guest's pressure stall information, which minipve does not measure."""
_sample_lock = threading.Lock()
_sample: tuple[float, float, float] = (0.0, 0.0, 0.0)


def _meminfo() -> dict[str, int]:
    rows = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows}


def memory() -> dict[str, int]:
    """Return bytes: ``total``, ``used``, ``free``, ``available``."""
    facts = _meminfo()
    total, available = facts["MemTotal"], facts["MemAvailable"]
    return {"total": total, "available": available, "free": facts["MemFree"], "used": total - available}


def swap() -> dict[str, int]:
    """Return bytes: ``total``, ``used``, ``free``."""
    facts = _meminfo()
    total, free = facts.get("SwapTotal", 0), facts.get("SwapFree", 0)
    return {"total": total, "free": free, "used": total - free}


def cpu_fraction() -> float:
    """Return the busy share of all CPUs since the last call (0..1)."""
    global _sample
    fields = [float(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    total, idle = sum(fields), fields[3] + fields[4]
    with _sample_lock:
        before_total, before_idle, last = _sample
        if total - before_total < 5:  # ticks: too short an interval
            return last
        busy = 1 - (idle - before_idle) / (total - before_total)
        _sample = (total, idle, busy)
    return busy


def uptime_s() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME))


@cache
def cpus() -> int:
    return os.cpu_count() or 1


@cache
def cpu_info() -> dict[str, Any]:
    """Return model, vendor, speed and flags of the first CPU."""
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return {
        "model": facts.get("model name", platform.machine()),
        "vendor": facts.get("vendor_id", ""),
        "family": facts.get("cpu family", ""),
        "mhz": facts.get("cpu MHz", "0"),
        "flags": facts.get("flags", ""),
        "cpus": cpus(),
        "cores": cpus(),
        "sockets": 1,
        "user_hz": os.sysconf("SC_CLK_TCK"),
        "hvm": "1" if Path("/dev/kvm").exists() else "",
    }


def kernel() -> dict[str, str]:
    name = platform.uname()
    return {"sysname": name.system, "release": name.release, "version": name.version, "machine": name.machine}


def root_filesystem() -> dict[str, int]:
    """Return bytes of the root file system: ``total``, ``used``, ``free``, ``avail``."""
    disk = shutil.disk_usage("/")
    return {"total": disk.total, "used": disk.used, "free": disk.total - disk.used, "avail": disk.free}


# Processors in use by a guest, computed from two readings of its processor time.

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
