"""Tasks that compute, or wait without Dask."""

from __future__ import annotations

import multiprocessing
import random

import numpy as np
from dask import delayed
from distributed import Client, LocalCluster, wait

from .situation import burn, rest, situation, spin, spread, vary, worker_at


@situation("computing")
def compute_bound(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Tasks of equal length compute in Python."""
    client.gather(spread(client, spin, [vary(chance, 0.03)] * 60))


@situation("computing")
def one_long_task(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """One task computes for much longer than all others together."""
    client.gather(spread(client, spin, [0.01] * 30 + [vary(chance, 1.5)]))


@situation("computing")
def two_computes(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Two computations follow one another."""
    for _ in range(2):
        client.gather(spread(client, spin, [vary(chance, 0.2)] * 6))


@situation("computing")
def chain(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Each task needs the one before, so one thread works at a time."""
    future = client.submit(spin, 0.1, pure=False)
    for _ in range(12):
        future = client.submit(spin, 0.1, future, pure=False)
    future.result()


@situation("computing")
def tasks_on_one_worker(client: Client, cluster: LocalCluster, chance: random.Random) -> str:
    """All tasks are restricted to one of two workers."""
    worker = next(iter(client.scheduler_info()["workers"]))
    client.gather(client.map(spin, [vary(chance, 0.05)] * 30, workers=[worker], pure=False))
    return worker_at(cluster, worker)


@situation("computing")
def persist_and_wait(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client waits for a future without fetching its result."""
    (future,) = client.compute([delayed(sum)([delayed(spin)(vary(chance, 0.05)) for _ in range(40)])])
    wait(future)


@situation("outside")
def waiting_outside(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Tasks sleep: they wait for something that is not Dask."""
    client.gather(spread(client, rest, [vary(chance, 0.2)] * 20))


@situation("interpreter", threads_per_worker=4)
def interpreter_lock(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Four threads of each worker compute in pure Python."""
    client.gather(spread(client, spin, [vary(chance, 0.1)] * 24))


@situation("garbage collection")
def garbage(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Tasks collect garbage again and again."""

    def allocate(number: int) -> int:
        import gc

        objects = [[i] for i in range(200_000)]
        for _ in range(6):
            gc.collect()
        return len(objects)

    client.gather(spread(client, allocate, range(12)))


@situation("cpu")
def starved(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Eight other programs use the CPUs."""
    others = [multiprocessing.Process(target=burn, args=(60,)) for _ in range(8)]
    for other in others:
        other.start()
    client.gather(spread(client, spin, [vary(chance, 0.05)] * 16))
    for other in others:
        other.kill()


@situation("slow worker", place="worker-1")
def slow_worker(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The same tasks compute for longer on one of two workers."""
    length = vary(chance, 0.15)

    def slow(number: int) -> int:
        from distributed import get_worker

        spin(length if get_worker().name == 1 else 0.02)
        return number

    client.gather(spread(client, slow, range(40)))


@situation("computing", "worker lag", "busy peers")
def shuffle(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A data frame is shuffled."""
    import pandas as pd
    from dask import dataframe as dd

    frame = dd.from_pandas(
        pd.DataFrame({"a": np.arange(200_000), "b": np.random.rand(200_000)}), npartitions=12
    )
    frame.shuffle("b").map_partitions(len).compute()


@situation("computing")
def errors_and_retries(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Tasks compute, some fail, and are run again."""

    def fails(number: int) -> int:
        spin(0.05)
        if random.random() < 0.3:
            raise ValueError(number)
        return number

    client.gather(client.map(fails, range(30), retries=20, pure=False))


@situation("scheduler", "worker lag")
def tiny_tasks(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """More than a thousand tasks do nothing."""
    client.gather(spread(client, int, range(int(vary(chance, 1500)))))
