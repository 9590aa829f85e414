"""Measure the frequency of the host's time stamp counter.

An emulated guest reads the host's counter and calibrates it against an emulated timer while it boots. On a
busy host the result has been wrong by a factor of three, and with it all clocks of the guest. So the guest
gets the frequency on its kernel's command line (``tsc_early_khz``).
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import time
from collections.abc import Callable
from functools import cache

RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
TRIES, INTERVAL_S = 50, 0.1


@cache
def khz() -> int | None:
    """Return the counter's frequency in kHz, or None on a host without one. Measured once per process."""
    if platform.machine() not in {"x86_64", "AMD64"}:
        return None
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(RDTSC)
        code = ctypes.c_char.from_buffer(page)
        read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(code))
        first = _stamp(read)
        time.sleep(INTERVAL_S)
        last = _stamp(read)
        del code, read
    return round((last[0] - first[0]) / (last[1] - first[1]) / 1e3)


def _stamp(read: Callable[[], int]) -> tuple[int, float]:
    """Read counter and clock (s) at the same moment: of several tries, the one that took the least time."""
    tries = [(time.perf_counter(), read(), time.perf_counter()) for _ in range(TRIES)]
    before, ticks, after = min(tries, key=lambda attempt: attempt[2] - attempt[0])
    return ticks, (before + after) / 2
