"""A tree of pairwise sums over arrays: dependencies deepen while parallelism halves at each level."""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import numpy as np
from _harness import Job, main
from dask._task_spec import Task, TaskRef
from distributed import Client
from numpy.typing import NDArray


def leaf(value: int, size_kb: int) -> NDArray[np.float64]:
    """An array of ``size_kb`` kB that holds ``value`` everywhere."""
    return np.full(size_kb * 1000 // 8, float(value))


def prepare(client: Client, leaves: int = 1_024, size_kb: int = 1_000) -> Job:
    """The last array holds the sum of the leaves' values in every place; its mean is the answer."""

    def run(number: int) -> float:
        level = [f"leaf-{number}-{i}" for i in range(leaves)]
        graph = {key: Task(key, leaf, i, size_kb) for i, key in enumerate(level)}
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            odd = level[len(level) // 2 * 2 :]
            added = [
                Task(f"sum-{number}-{len(graph) + i}", np.add, TaskRef(a), TaskRef(b))
                for i, (a, b) in enumerate(pairs)
            ]
            graph |= {str(task.key): task for task in added}
            level = [str(task.key) for task in added] + odd
        return float(np.mean(client.get(graph, level[0])))

    return Job(run, expected=leaves * (leaves - 1) / 2, tolerance=1e-6, tasks=2 * leaves - 1)


if __name__ == "__main__":
    main(prepare)
