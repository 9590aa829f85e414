"""Dataframe groupby: partial sums per partition, then a tree that merges equal keys."""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

from _harness import Job, main
from distributed import Client, wait


def prepare(client: Client, rows: int = 20_000_000, partitions: int = 60, groups: int = 100_000) -> Job:
    """Row i has key i modulo ``groups`` and value 1. The answer is the sum of the keys of all rows."""
    import dask.dataframe as dd
    import numpy as np
    import pandas as pd

    per = rows // partitions

    def part(index: int) -> pd.DataFrame:
        return pd.DataFrame({"key": np.arange(index * per, (index + 1) * per) % groups, "value": 1})

    frame = dd.from_map(part, range(partitions)).persist()
    wait(frame)
    keys = np.arange(per * partitions) % groups

    def run(number: int) -> float:
        sums = (frame + {"key": 0, "value": number}).groupby("key").value.sum().compute()
        return float((sums.index.to_numpy() * sums.to_numpy()).sum()) / (1 + number)

    return Job(run, expected=float(keys.sum()), tolerance=1e-9 * float(keys.sum()))


if __name__ == "__main__":
    main(prepare)
