"""One worker is slow: how well do work stealing and the network move its tasks to the others?

All tasks are equal, but take x ``slowdown`` on the worker whose address sorts first.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import time

from _harness import Job, main, workers_of
from distributed import Client, get_worker


def work(number: int, task_ms: float, slow: str, slowdown: float) -> int:
    """Sleep, longer on the slow worker."""
    time.sleep(task_ms / 1000 * (slowdown if get_worker().address == slow else 1))
    return number


def prepare(client: Client, tasks: int = 300, task_ms: float = 20.0, slowdown: float = 10.0) -> Job:
    """Each task returns its number. The answer is their sum."""
    slow = min(workers_of(client))

    def run(number: int) -> float:
        futures = client.map(work, range(tasks), task_ms=task_ms, slow=slow, slowdown=slowdown, pure=False)
        return float(sum(client.gather(futures)))

    return Job(run, expected=tasks * (tasks - 1) / 2, tasks=tasks)


if __name__ == "__main__":
    main(prepare)
