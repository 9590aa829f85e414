"""A tree of pairwise sums over arrays: at each level the parallelism halves."""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import numpy as np
from _graph import ref, task
from _harness import Job, main
from distributed import Client
from numpy.typing import NDArray


def leaf(value: int, size_kb: int) -> NDArray[np.float64]:
    """Return an array of ``size_kb`` kB that holds ``value`` everywhere."""
    return np.full(size_kb * 1000 // 8, float(value))


def prepare(client: Client, leaves: int = 1_024, size_kb: int = 1_000) -> Job:
    """The last array holds the sum of the leaves' values everywhere. The answer is its mean."""

    def run(number: int) -> float:
        level = [f"leaf-{number}-{i}" for i in range(leaves)]
        graph = {key: task(key, leaf, i, size_kb) for i, key in enumerate(level)}
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            odd = level[len(level) // 2 * 2 :]
            added = {f"sum-{number}-{len(graph) + i}": pair for i, pair in enumerate(pairs)}
            graph |= {key: task(key, np.add, ref(a), ref(b)) for key, (a, b) in added.items()}
            level = [*added, *odd]
        return float(np.mean(client.get(graph, level[0])))

    return Job(run, expected=leaves * (leaves - 1) / 2, tolerance=1e-6, tasks=2 * leaves - 1)


if __name__ == "__main__":
    main(prepare)
