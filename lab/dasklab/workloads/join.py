"""Dataframe join of two tables on a column by which neither is sorted, so both are shuffled."""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

from _harness import Job, main
from distributed import Client, wait


def prepare(client: Client, rows: int = 5_000_000, partitions: int = 30, method: str = "tasks") -> Job:
    """Both tables have each key once, in a different order. The answer is the sum of the keys' squares."""
    import dask.dataframe as dd
    import numpy as np
    import pandas as pd

    per = rows // partitions
    total = per * partitions

    def part(index: int, step: int, name: str) -> pd.DataFrame:
        keys = np.arange(index * per, (index + 1) * per) * step % total
        return pd.DataFrame({"key": keys, name: keys.astype(float)})

    # With a step that has no common divisor with the number of rows, every key occurs once.
    step = next(step for step in range(total // 3, total) if np.gcd(step, total) == 1)
    left = dd.from_map(part, range(partitions), step=1, name="left").persist()
    right = dd.from_map(part, range(partitions), step=step, name="right").persist()
    wait([left, right])

    def run(number: int) -> float:
        shifted = left.assign(left=left.left + number)
        joined = shifted.merge(right, on="key", shuffle_method=method)
        return float(((joined.left - number) * joined.right).sum().compute())

    expected = float((np.arange(total, dtype=float) ** 2).sum())
    return Job(run, expected=expected, tolerance=1e-9 * expected)


if __name__ == "__main__":
    main(prepare)
