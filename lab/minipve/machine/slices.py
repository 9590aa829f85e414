"""Longer slices of the host's cores for emulated machines: more of them than cores cost each other less.

What an emulated machine executes is translated code of many megabytes, that a core's caches forget whenever
it turns to another machine. Five on two cores, each importing Dask, took 14.4 s with the scheduler's own
slices and 12.1 s with these (medians of 5; one alone 3.7 s). A slice is a wish: kernels before 6.12 take no
note of it, and whoever has shorter ones, so all others, is still let in between.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from contextlib import suppress
from pathlib import Path

SLICE_S = 0.1  # the most that Linux takes
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}.get(platform.machine())  # glibc has it since 2.41
SCHED_ATTR = struct.Struct("IIQiIQQQ")  # size, policy, flags, nice, priority, runtime, deadline, period


def lengthen(pid: int) -> None:
    """Give all threads of a process long slices; what they start inherits them."""
    if SCHED_SETATTR is None:
        return
    with suppress(OSError):  # it has just ended, or one of its threads
        for thread in [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]:
            policy, nice = os.sched_getscheduler(thread), os.getpriority(os.PRIO_PROCESS, thread)
            if policy != os.SCHED_OTHER:  # somebody chose another: it stays
                continue
            wish = SCHED_ATTR.pack(SCHED_ATTR.size, policy, 0, nice, 0, int(SLICE_S * 1e9), 0, 0)
            ctypes.CDLL(None).syscall(SCHED_SETATTR, thread, wish, 0)
