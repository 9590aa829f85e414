"""Tasks without content: they compute and wait as long, and return as much, as recorded ones did.

Workers import this file, which is sent to them; so it imports nothing of its folder.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

BLOCK = bytes(16_384)  # hashing it takes about 50 us, and other threads may run meanwhile


def placeholder(cpu_s: float, wait_s: float, nbytes: int, *_: Any) -> bytes:
    """Compute and wait for so long, and return a result of a size. It does not hold the interpreter lock."""
    stop = time.thread_time() + cpu_s
    while time.thread_time() < stop:
        hashlib.sha256(BLOCK)
    if wait_s:
        time.sleep(wait_s)
    return bytes(nbytes)
