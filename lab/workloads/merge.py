"""N tiny tasks and one that merges them (the rsds suite's ``merge``): what a task costs the scheduler.

The graph is raw: built with ``delayed``, dask's own culling of N one-task layers takes time in N squared
before the first task starts, and that, not the scheduler, would be measured.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

from _harness import Job, main
from dask._task_spec import List, Task, TaskRef
from distributed import Client


def increment(number: int) -> int:
    """The tiny task."""
    return number + 1


def prepare(client: Client, tasks: int = 20_000) -> Job:
    """A new set of keys per run, so that nothing of the last run can answer for this one."""

    def run(number: int) -> float:
        leaves = [f"leaf-{number}-{i}" for i in range(tasks)]
        graph = {key: Task(key, increment, i) for i, key in enumerate(leaves)}
        top = f"merge-{number}"
        graph[top] = Task(top, sum, List(*map(TaskRef, leaves)))
        return float(client.get(graph, top))

    return Job(run, expected=tasks * (tasks + 1) / 2, tasks=tasks + 1)


if __name__ == "__main__":
    main(prepare)
