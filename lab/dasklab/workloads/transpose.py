"""An array plus its transpose, sliced, with means along an axis: the first example in many Dask talks."""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import dask.array as da
from _harness import Job, main
from distributed import Client, wait


def prepare(client: Client, size: int = 10_000, chunk: int = 1_000) -> Job:
    """Place (i, j) holds i + 2 j, so the sum with the transpose is 3 (i + j)."""
    index = da.arange(size, chunks=chunk, dtype=float)
    array = (index[:, None] + 2 * index[None, :]).persist()
    wait(array)
    half = size // 2

    def run(number: int) -> float:
        shifted = array + number
        quarter = (shifted + shifted.T)[::2, half:]
        return float(quarter.mean(axis=1).mean().compute()) - 2 * number

    rows = len(range(0, size, 2)) - 1.0  # the mean of 0, 2, 4 ...
    columns = (half + size - 1) / 2
    return Job(run, expected=3 * (rows + columns), tolerance=1e-9 * size)


if __name__ == "__main__":
    main(prepare)
