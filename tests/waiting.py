"""How tests wait: for a condition, with a bound that no busy machine exceeds."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120.0
"""Only a test that fails waits so long. It is no measure of how quick something is."""


def until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds; fail, naming it, if it does not."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {patience_s:g} s for {what}"
        time.sleep(0.02)
