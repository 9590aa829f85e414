"""Tasks of a known length, in a module whose import costs a worker nothing."""

from __future__ import annotations

import time
from typing import Any

TASK_S = 0.15


def sleep(number: int, *_: Any) -> int:
    time.sleep(TASK_S)
    return number


def fail(number: int) -> int:
    raise ValueError(number)
