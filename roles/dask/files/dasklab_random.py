"""A preload of the scheduler: tasks go to workers at random, whatever these have and do.

What this costs beside Dask's own choice is what that one is worth.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import random
from typing import Any


def dask_setup(scheduler: Any) -> None:
    """Dask calls this before the scheduler takes part in a cluster."""

    def anywhere(task: Any) -> Any:
        allowed = scheduler.valid_workers(task)
        among = scheduler.running if allowed is None else allowed
        return random.choice(sorted(among, key=lambda worker: worker.address)) if among else None

    def free() -> Any:
        """With queuing a task goes to none but one of the idle: the rest stays with the scheduler."""
        idle = sorted(scheduler.idle_task_count, key=lambda worker: worker.address)
        return random.choice(idle) if idle else None

    scheduler.decide_worker_non_rootish = anywhere
    scheduler.decide_worker_rootish_queuing_disabled = anywhere
    scheduler.decide_worker_rootish_queuing_enabled = free
