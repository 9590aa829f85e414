"""Usual work with collections, and healthy computations in which there is nothing to blame."""

from __future__ import annotations

import contextlib
import importlib
import random
from collections.abc import Iterator

import dask.array as da
import dask.bag as db
import numpy as np
import pandas as pd
from dask import dataframe as dd
from distributed import Client, LocalCluster, as_completed

from .situation import rest, situation, spin, spread, vary

COMMON = ("computing", "worker lag", "busy peers", "placement", "scheduler")
"""What may be first where data moves between computing tasks of some ten milliseconds."""


@contextlib.contextmanager
def imported(client: Client, cluster: LocalCluster, chance: random.Random) -> Iterator[None]:
    """Let all workers import the collections before the recording."""
    for module in ("dask.array", "dask.bag", "dask.dataframe", "distributed.shuffle"):
        client.run(importlib.import_module, module)
    yield


@situation("computing", around=imported, advice=("reduction into one partition",))
def groupby_with_many_groups(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Nearly every row is a group of its own, and one task combines them all.

    Right advice: split_out. (https://github.com/dask/dask/issues/4001)
    """
    rows = int(vary(chance, 120_000))

    def load(number: int) -> pd.DataFrame:
        rows_of_part = np.arange(rows) + number * rows
        return pd.DataFrame({"customer": rows_of_part, "paid": rows_of_part % 7.0})

    frame = dd.from_map(load, range(10), meta=pd.DataFrame({"customer": [1], "paid": [1.0]}))
    frame.groupby("customer").paid.mean(split_out=1).max().compute()


@situation(
    *COMMON,
    around=imported,
    wrong_advice=("one long task", "few long tasks", "skew of data", "avoidable transfers"),
)
def rechunk_rows_to_columns(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """An array in blocks of rows is needed in blocks of columns, so every block goes everywhere.

    Wrong: one long task; skew; placement that could be better.
    """
    size = int(vary(chance, 4000))
    blocks = da.random.random((size, size), chunks=(size // 16, size))
    blocks.rechunk((size, size // 16)).sum().compute()


@situation(*COMMON, around=imported, wrong_advice=("skew of data",))
def groupby_of_a_bag(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A bag is grouped, which moves all its items between tasks.

    Right advice, if any: foldby, or a data frame. Wrong: skew.
    """
    items = db.range(int(vary(chance, 80_000)), npartitions=8)
    items.groupby(lambda number: number % 40).map(lambda group: len(group[1])).sum().compute()


@situation("outside", advice=())
def short_and_healthy(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Eight short tasks share two threads evenly. No advice."""
    client.gather(spread(client, rest, [vary(chance, 0.06)] * 8))


@situation("computing", advice=())
def balanced_and_healthy(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Tasks of good length keep both workers computing. No advice."""
    client.gather(spread(client, spin, [vary(chance, 0.12)] * 24))


@situation(*COMMON, "graphs", "results", "client data", around=imported, advice=())
def mean_of_a_small_array(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A mean of a few blocks takes a tenth of a second, of which everything has a little. No advice."""
    size = int(vary(chance, 1500))
    da.random.random((size, size), chunks=(size // 3, size // 3)).mean().compute()


@situation("outside", advice=())
def window_of_tasks_in_flight(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client keeps four tasks in flight with as_completed: both threads always have work. No advice."""
    length = vary(chance, 0.08)
    running = as_completed(spread(client, rest, [length] * 4))
    for number, future in enumerate(running):
        future.result()
        if number < 26:
            running.add(client.submit(rest, length, pure=False))
