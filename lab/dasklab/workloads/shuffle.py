"""All to all in tiny tasks: N results are split into N pieces each, and the i-th pieces of all are summed.

The graph is raw, as in ``merge``: N + N * N + N + 1 tasks that take microseconds each, so what is measured is
the scheduler's work on dependencies, not the data.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

from _graph import ref, refs, task
from _harness import Job, main
from distributed import Client


def source(number: int, parts: int) -> list[int]:
    """Return as many numbers as there are parts."""
    return [number * parts + i for i in range(parts)]


def piece(whole: list[int], index: int) -> int:
    return whole[index]


def prepare(client: Client, parts: int = 100) -> Job:
    """The answer is the sum of all numbers, each counted once."""

    def run(number: int) -> float:
        sources = [f"source-{number}-{i}" for i in range(parts)]
        graph = {key: task(key, source, i, parts) for i, key in enumerate(sources)}
        sums = []
        for j in range(parts):
            pieces = {f"piece-{number}-{j}-{i}": whole for i, whole in enumerate(sources)}
            graph |= {key: task(key, piece, ref(whole), j) for key, whole in pieces.items()}
            sums.append(f"sum-{number}-{j}")
            graph[sums[-1]] = task(sums[-1], sum, refs(pieces))
        top = f"shuffle-{number}"
        graph[top] = task(top, sum, refs(sums))
        return float(client.get(graph, top))

    whole = parts * parts
    return Job(run, expected=whole * (whole - 1) / 2, tasks=whole + 2 * parts + 1)


if __name__ == "__main__":
    main(prepare)
