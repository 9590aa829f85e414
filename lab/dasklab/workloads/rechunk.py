"""All to all: an array in chunks of rows is rechunked to columns, so every worker sends to every other.

``method`` is Dask's: ``tasks`` (one task per piece) or ``p2p`` (workers push pieces to each other).
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import dask.array as da
from _harness import Job, main
from distributed import Client, wait


def prepare(client: Client, size: int = 10_000, pieces: int = 20, method: str = "tasks") -> Job:
    """Row i holds the number i, so the mean of a column is (size - 1) / 2. The answer is the worst one."""
    rows = da.broadcast_to(da.arange(size, chunks=-(-size // pieces), dtype=float)[:, None], (size, size))
    source = rows.rechunk({1: -1}).map_blocks(lambda block: block.copy()).persist()
    wait(source)
    middle = (size - 1) / 2

    def run(number: int) -> float:
        columns = (source + number).rechunk((-1, -(-size // pieces)), method=method)
        means = columns.mean(axis=0).compute() - number
        return float(means[abs(means - middle).argmax()])

    return Job(run, expected=middle, tolerance=1e-9 * size)


if __name__ == "__main__":
    main(prepare)
