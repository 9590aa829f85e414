"""Threads that were there or not: workers that start, join, leave, restart, or are paused."""

from __future__ import annotations

import builtins
import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
from distributed import Client, LocalCluster

from .situation import rest, situation, spread, vary, worker_at

STEP_S = 0.02
LEAKY = {
    "distributed.worker.memory.pause": 0.6,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.terminate": False,
}


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    while not condition():
        time.sleep(STEP_S)


def addresses(client: Client) -> list[str]:
    """Return the addresses of the workers that are there."""
    return list(client.scheduler_info(n_workers=-1)["workers"])


@contextlib.contextmanager
def later(seconds: float, function: Callable[[], object]) -> Iterator[None]:
    """Call a function after so many seconds, in another thread."""
    timer = threading.Timer(seconds, function)
    timer.start()
    yield
    timer.join()


@situation("no worker", n_workers=0)
def no_workers_at_first(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The tasks are there, but for seconds no worker is, as when a job waits in the queue of SLURM.

    Then one worker starts and does all of them. (https://github.com/esm-tools/pycmor/issues/267)
    """
    futures = spread(client, rest, [0.1] * 8)
    with later(vary(chance, 2.5), lambda: cluster.scale(1)):
        client.gather(futures)


@situation("outside", n_workers=1)
def one_of_three_workers_at_first(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """One worker does all the work until two more have started.

    Tasks sleep; on three workers from the start they would take a third of the time.
    (https://github.com/dask/distributed/issues/2329)
    """
    futures = spread(client, rest, [vary(chance, 0.15)] * 40)
    with later(1.0, lambda: cluster.scale(3)):
        client.gather(futures)


@situation("outside", n_workers=3)
def two_of_three_workers_retire(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Two of three workers are retired in the middle, and one does the rest.

    Tasks sleep. (https://github.com/dask/distributed/issues/7742)
    """
    futures = spread(client, rest, [vary(chance, 0.12)] * 40)
    with later(0.6, lambda: client.retire_workers(addresses(client)[1:])):
        client.gather(futures)


@situation("no worker", n_workers=0)
def adaptive_from_zero(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """An adaptive cluster starts a worker when there is work, and stops it as soon as there is none.

    So both of two computations wait for a worker that starts. (https://github.com/dask/distributed/issues/6880)
    """
    cluster.adapt(minimum=0, maximum=2, interval="100ms", wait_count=1)
    for _ in range(2):
        client.gather(spread(client, rest, [vary(chance, 0.05)] * 8))
        until(lambda: not addresses(client))


@situation("answers", "no worker")
def restart_inside(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client restarts the cluster between two short computations.

    The call returns when the nannies have started new workers. (https://github.com/dask/distributed/pull/6714)
    """
    for again in (True, False):
        client.gather(spread(client, rest, [vary(chance, 0.05)] * 8))
        if again:
            client.restart()


@situation("answers", n_workers=1)
def wait_for_workers_inside(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client asks for two more workers and waits until they are there, before it computes.

    One worker was there all the time. (https://github.com/dask/distributed/issues/3610)
    """
    cluster.scale(3)
    client.wait_for_workers(3)
    client.gather(spread(client, rest, [vary(chance, 0.03)] * 9))


@contextlib.contextmanager
def leak(client: Client, cluster: LocalCluster, chance: random.Random) -> Iterator[None]:
    """Fill the memory of worker 0 with what is no result, until it is paused."""

    def fill(dask_worker: object) -> None:
        builtins.kept = np.ones(350 * 131_072)  # type: ignore[attr-defined]

    worker = leaky(client)
    client.run(fill, workers=[worker])
    until(lambda: client.scheduler_info(n_workers=-1)["workers"][worker]["status"] == "paused")
    yield


def leaky(client: Client) -> str:
    """Return the address of worker 0."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return next(address for address, worker in workers.items() if worker["name"] == 0)


def free(client: Client) -> None:
    """Give back what fills the memory of worker 0."""

    def empty(dask_worker: object) -> None:
        builtins.kept = None  # type: ignore[attr-defined]

    client.run(empty, workers=[leaky(client)])


@situation("outside", "memory", around=leak, config=LEAKY, memory_limit="500MB")
def leak_pauses_a_worker(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Memory that Dask does not manage pauses one of two workers until somebody frees it.

    Meanwhile the other does all the work: tasks sleep. (https://github.com/dask/distributed/issues/5235)
    """
    futures = spread(client, rest, [vary(chance, 0.1)] * 50)
    time.sleep(vary(chance, 2.0))
    free(client)
    client.gather(futures)


@situation("memory", around=leak, config=LEAKY, memory_limit="500MB")
def only_allowed_worker_is_paused(client: Client, cluster: LocalCluster, chance: random.Random) -> str:
    """The tasks may run on one worker only, which is paused because of memory that Dask does not manage.

    They start when somebody frees it. (https://github.com/dask/distributed/issues/5235)
    """
    worker = leaky(client)
    futures = client.map(rest, [0.1] * 6, workers=[worker], pure=False)
    time.sleep(vary(chance, 2.5))
    free(client)
    client.gather(futures)
    return worker_at(cluster, worker)
