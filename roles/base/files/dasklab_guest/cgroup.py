"""What a container may use and has used, from its own control group, version 1 or 2.

/proc shows a container the CPUs and the memory of its node, unless the node runs lxcfs. What its group does
not limit is limited by what /proc shows.
"""

from __future__ import annotations

import os
from pathlib import Path

from dasklab_guest.common import read

ROOT = Path("/sys/fs/cgroup")


def first(*files: str) -> str:
    """Return the text of the first of these files that can be read, or an empty string."""
    return next((text for file in files if (text := read(ROOT / file).strip())), "")


def cpus(cores: int) -> float:
    """Return the number of CPUs whose time this container may use.

    Args:
        cores: their number as the inventory has it, for a container that cannot see its limit; 0 if unknown.
    """
    quota, _, period = first("cpu.max").partition(" ")
    quota = quota or first("cpu/cpu.cfs_quota_us", "cpu,cpuacct/cpu.cfs_quota_us")
    period = period or first("cpu/cpu.cfs_period_us", "cpu,cpuacct/cpu.cfs_period_us")
    usable = float(len(os.sched_getaffinity(0)))
    if quota.isdigit() and period:
        return min(usable, int(quota) / int(period))
    return min(usable, cores or usable) if not quota else usable


def cpu_s() -> float | None:
    """Return the CPU time that this container has used; None if nothing counts it."""
    if nanoseconds := first("cpuacct/cpuacct.usage", "cpu,cpuacct/cpuacct.usage"):
        return int(nanoseconds) / 1e9
    microseconds = _figure("usage_usec", "cpu.stat", "unified/cpu.stat")
    return None if microseconds is None else microseconds / 1e6


def memory_bytes(total_bytes: int) -> int:
    """Return the memory that this container may use, of ``total_bytes`` that /proc shows."""
    limit = first("memory.max", "memory/memory.limit_in_bytes")
    return min(int(limit), total_bytes) if limit.isdigit() else total_bytes


def memory_used(total_bytes: int) -> float | None:
    """Return the share of its memory that this container uses; None if nothing counts it.

    Args:
        total_bytes: the memory that /proc shows.
    """
    current = first("memory.current", "memory/memory.usage_in_bytes")
    if not current:
        return None
    cached = _figure("total_inactive_file", "memory/memory.stat") or _figure("inactive_file", "memory.stat")
    return max(0, int(current) - int(cached or 0)) / memory_bytes(total_bytes)


def _figure(name: str, *files: str) -> int | None:
    """Return one figure of the first of these files; each line of them has a name and a figure."""
    rows = dict(line.split() for line in first(*files).splitlines() if len(line.split()) == 2)
    return int(rows[name]) if name in rows else None
