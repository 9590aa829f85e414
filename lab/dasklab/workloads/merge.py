"""N tiny tasks and one that merges their results: what a task costs the scheduler.

With ``task_ms`` the tasks sleep (``merge`` and ``merge-slow`` of the rsds suite).

The graph is raw. If it is built by ``delayed`` (parameter ``graph``), Dask culls N layers of one task, which
takes time proportional to N squared before the first task starts, and hides the scheduler's cost.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import time

from _graph import refs, task
from _harness import Job, main
from dask.delayed import delayed
from distributed import Client


def increment(number: int, task_ms: float) -> int:
    if task_ms:
        time.sleep(task_ms / 1000)
    return number + 1


def prepare(client: Client, tasks: int = 20_000, task_ms: float = 0.0, graph: str = "raw") -> Job:
    """Each repeat has new keys, so that no earlier result can be reused."""

    def by_delayed(number: int) -> float:
        leaves = [delayed(increment, pure=False)(i, task_ms) for i in range(tasks)]
        return float(client.compute(delayed(sum)(leaves)).result())

    def raw(number: int) -> float:
        leaves = [f"leaf-{number}-{i}" for i in range(tasks)]
        tiny = {key: task(key, increment, i, task_ms) for i, key in enumerate(leaves)}
        top = f"merge-{number}"
        merged = {top: task(top, sum, refs(leaves))}
        return float(client.get(tiny | merged, top))

    if graph not in ("raw", "delayed"):
        raise SystemExit(f"no graph {graph!r}; there are raw, delayed")
    run = raw if graph == "raw" else by_delayed
    return Job(run, expected=tasks * (tasks + 1) / 2, tasks=tasks + 1)


if __name__ == "__main__":
    main(prepare)
