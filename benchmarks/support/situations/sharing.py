"""Who has the threads: another client's job, a long job of one's own, and tasks that are more urgent."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator

from distributed import Client, LocalCluster, wait

from .situation import rest, situation, spin, spread, vary


@contextlib.contextmanager
def another_job(client: Client, cluster: LocalCluster, chance: random.Random) -> Iterator[None]:
    """Let another client fill the cluster for some seconds."""
    with Client(cluster.scheduler_address, set_as_default=False) as other:
        futures = other.map(report_of_another_team, [vary(chance, 0.25)] * 24, pure=False)
        yield
        wait(futures)


def report_of_another_team(seconds: float) -> float:
    """Do the other client's work."""
    return rest(seconds)


@situation("outside", around=another_job)
def another_clients_job(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Another client's long job came first, so six short tasks of this one wait until it is done.

    The other tasks sleep. (https://github.com/dask/distributed/issues/4610)
    """
    client.gather(spread(client, spin, [0.03] * 6))


@situation("outside", around=another_job)
def another_clients_job_beside_a_loop(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Ten short tasks have a higher priority than another client's job, but wait for its running tasks.

    Each is submitted when the one before has ended. (https://github.com/dask/distributed/issues/1868)
    """
    for _ in range(10):
        client.submit(spin, 0.02, priority=10, pure=False).result()


@situation("outside")
def own_long_job_first(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client waits for six short tasks behind a long job of its own.

    The job's tasks sleep. (https://github.com/dask/distributed/issues/4610)
    """
    job = spread(client, rest, [vary(chance, 0.25)] * 24)
    time.sleep(0.2)  # Dask gives the same priority to what is submitted within 0.1 s
    client.gather(spread(client, spin, [0.05] * 6))
    del job


@situation("computing")
def urgent_task_first(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A long task has the higher priority, and a job of short ones goes on beside it and after it.

    The client waits for the long one only, which computes. (https://github.com/dask/distributed/issues/1868)
    """
    job = spread(client, rest, [0.1] * 60)
    client.submit(spin, vary(chance, 1.6), priority=10, pure=False).result()
    del job
