"""What a message costs the event loop that writes or reads it.

The cost is a number of operations times ``op_s``, plus the bytes times ``byte_s``. An operation is an entry
of a message that concerns a task or a request. The message itself counts as a fraction of an operation, and
so does an entry that is only a notice about a key: thousands of notices are sent when keys are released.
"""

from __future__ import annotations

from typing import Any, Literal

from dasklab.model.forms.strict import Strict

Role = Literal["scheduler", "worker", "client"]

# Measured as CPU time of turns in simulations (Dask 2026.8.0, workloads `merge` and `array_study`).
# Scheduler: 178 to 263 us to handle a finished task, 70 to 77 us for a message with one or two notices, 3 to
# 7 us for each of many notices in one message. Worker: 46 to 72 us to send a notice.
MESSAGE = 0.3
NOTICE = 0.05
NOTICES = frozenset({"add-keys", "free-keys", "release-worker-data"})
# The share of a core that an idle worker's process takes (heartbeats, self-monitoring). Measured as the
# growth of all workers' CPU per worker and second when 3 to 48 workers did the same tasks (`many_workers`,
# containers, Dask 2026.8.0, 2026-11-23).
IDLE_WORKER = 0.024


class Costs(Strict):
    """CPU seconds for each operation in a message, and for each of its bytes."""

    op_s: float = 0.0
    byte_s: float = 0.0


def operations(message: Any) -> float:
    """Return the number of operations that a message counts as."""
    parts = message if isinstance(message, list | tuple) else [message]
    return MESSAGE + sum(NOTICE if _is_notice(part) else 1 for part in parts)


def _is_notice(part: Any) -> bool:
    return isinstance(part, dict) and part.get("op") in NOTICES
