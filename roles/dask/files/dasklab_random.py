"""A preload that makes the scheduler choose workers at random, whatever data and load they have.

The difference to Dask's own choice is what that choice is worth.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import random
from typing import Any


def dask_setup(scheduler: Any) -> None:
    """Replace the scheduler's choice. Dask calls this before the scheduler starts."""

    def any_worker(task: Any) -> Any:
        valid = scheduler.valid_workers(task)
        candidates = scheduler.running if valid is None else valid
        return random.choice(sorted(candidates, key=lambda worker: worker.address)) if candidates else None

    def any_idle_worker() -> Any:
        """With queuing, only idle workers get a task; the others stay queued on the scheduler."""
        idle = sorted(scheduler.idle_task_count, key=lambda worker: worker.address)
        return random.choice(idle) if idle else None

    scheduler.decide_worker_non_rootish = any_worker
    scheduler.decide_worker_rootish_queuing_disabled = any_worker
    scheduler.decide_worker_rootish_queuing_enabled = any_idle_worker
