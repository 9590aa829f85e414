"""A blocked matrix product: each block of one matrix is multiplied by a whole row of blocks of the other."""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import dask.array as da
from _harness import Job, main
from distributed import Client, wait


def prepare(client: Client, size: int = 10_000, chunk: int = 1_000) -> Job:
    """The answer is the sum of all entries of A B: (column sums of A) . (row sums of B)."""
    a, b = (da.random.random((size, size), chunks=(chunk, chunk)).persist() for _ in range(2))
    wait([a, b])
    expected = float((a.sum(axis=0) * b.sum(axis=1)).sum().compute())
    shift = size * float(b.sum().compute())  # what adding 1 to all of A adds to the answer
    return Job(
        lambda repeat: float(((a + repeat) @ b).sum().compute()) - repeat * shift,
        expected=expected,
        tolerance=1e-8 * expected,
    )


if __name__ == "__main__":
    main(prepare)
