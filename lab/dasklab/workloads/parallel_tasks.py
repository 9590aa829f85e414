"""Embarrassingly parallel: tasks of a given length that need nothing from each other.

The tasks sleep, so that any time above ``tasks * task_ms / threads`` is Dask's and the network's.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import time

from _harness import Job, main
from distributed import Client


def work(number: int, task_ms: float) -> int:
    """One task: nothing but its length."""
    time.sleep(task_ms / 1000)
    return number


def prepare(client: Client, tasks: int = 1_000, task_ms: float = 10.0) -> Job:
    """Every task's number comes back; their sum is the answer."""

    def run(number: int) -> float:
        futures = client.map(work, range(tasks), task_ms=task_ms, pure=False)
        return float(sum(client.gather(futures)))

    return Job(run, expected=tasks * (tasks - 1) / 2, tasks=tasks)


if __name__ == "__main__":
    main(prepare)
