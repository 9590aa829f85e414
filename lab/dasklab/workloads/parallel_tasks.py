"""Embarrassingly parallel: independent tasks of one length.

The tasks sleep, so all time above ``tasks * task_ms / threads`` is due to Dask and the network.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import time

from _harness import Job, main
from distributed import Client


def work(number: int, task_ms: float) -> int:
    time.sleep(task_ms / 1000)
    return number


def prepare(client: Client, tasks: int = 1_000, task_ms: float = 10.0) -> Job:
    """Each task returns its number. The answer is their sum."""

    def run(number: int) -> float:
        futures = client.map(work, range(tasks), task_ms=task_ms, pure=False)
        return float(sum(client.gather(futures)))

    return Job(run, expected=tasks * (tasks - 1) / 2, tasks=tasks)


if __name__ == "__main__":
    main(prepare)
