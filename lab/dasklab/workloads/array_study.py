"""The 2019 study's computation: sums over products of four random arrays and their transposes.

Each chunk is combined with its mirror image, so workers fetch about half of all data from each other. The
factors of the numerator have mean 1, those of the denominator 1/2, so the answer is 2**4 = 16, with a
standard deviation of 10.8 / size.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

import dask.array as da
from _harness import Job, main
from distributed import Client


def prepare(client: Client, size: int = 10_000, chunk: int = 1_000) -> Job:
    """Build the graph once. As in the study, adding the repeat's number gives each repeat new keys."""
    w, x, y, z = (da.random.random((size, size), chunks=(chunk, chunk)) for _ in range(4))
    result = ((w + w.T) * (x + x.T) * (y + y.T) * (z + z.T)).sum() / (w * x * y * z).sum()
    # Variance of a ratio of means, to first order: (2.16 + 1.71 - 3.41) / size**2 of 16**2; six deviations.
    return Job(lambda i: float((result + i).compute()) - i, expected=16.0, tolerance=65.0 / size)


if __name__ == "__main__":
    main(prepare)
