"""What a message costs the process that writes or reads it."""

from __future__ import annotations

from typing import Any, Literal

from dasklab.model.strict import Strict

Role = Literal["scheduler", "worker", "client"]

# Shares of what an operation about a task or a request costs: what any message costs, whatever is in it, and
# a notice of one key. From the CPU of a simulation's own turns (Dask 2026.8.0, `merge` and `array_study`): on
# the scheduler 178 to 263 us to hear of a finished task, 70 to 77 for a message of a notice or two, 3 to 7
# for each of many in one; on a worker 46 to 72 to say one.
MESSAGE = 0.3
NOTICE = 0.05
# Of a core, what a worker's process takes beside its share of the work: heartbeats, looking at itself. Where
# 3 to 48 workers did the same tasks (`many_workers`, containers, Dask 2026.8.0, 2026-11-23), all workers' CPU
# grew by this for each worker and second.
IDLE_WORKER = 0.024
NOTICES = frozenset({"add-keys", "free-keys", "release-worker-data"})


class Costs(Strict):
    """CPU seconds per operation in a message, and per byte of it."""

    op_s: float = 0.0
    byte_s: float = 0.0


def operations(message: Any) -> float:
    """As how many operations about tasks or requests a message counts."""
    parts = message if isinstance(message, list | tuple) else [message]
    return MESSAGE + sum(NOTICE if _is_notice(part) else 1 for part in parts)


def _is_notice(part: Any) -> bool:
    return isinstance(part, dict) and part.get("op") in NOTICES
