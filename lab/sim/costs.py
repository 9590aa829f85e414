"""What a message costs the process that writes or reads it."""

from __future__ import annotations

from typing import Literal

from lab.model.strict import Strict

Role = Literal["scheduler", "worker", "client"]


class Costs(Strict):
    """CPU seconds per operation in a message, and per byte of it."""

    op_s: float = 0.0
    byte_s: float = 0.0
