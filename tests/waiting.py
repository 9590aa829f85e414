"""Wait for conditions, with a limit that even a busy machine keeps."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120.0
"""Only a failing test waits this long. It does not say how fast something should be."""


def until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds. Fail, naming ``what``, if it never does."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {patience_s:g} s for {what}"
        time.sleep(0.02)
