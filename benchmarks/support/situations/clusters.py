"""Workers that come, die or fill up, data between them, and busy event loops."""

from __future__ import annotations

import random
import time
from typing import Any

import distributed
from distributed import Client, LocalCluster, wait

from .situation import array, burn, situation, spin, spread, vary


@situation("lost results", "computing", "worker lag")
def worker_dies(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A worker is killed while results are on it."""
    futures = spread(client, spin, [vary(chance, 0.1)] * 30)
    time.sleep(0.6)
    next(iter(cluster.workers.values())).process.process.kill()
    client.gather(futures)


@situation("computing")
def workers_join(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A second worker is started a second after the work began."""
    cluster.scale(1)
    while len(client.scheduler_info()["workers"]) > 1:
        time.sleep(0.05)
    futures = spread(client, spin, [vary(chance, 0.1)] * 30)
    time.sleep(1.0)
    cluster.scale(2)
    client.gather(futures)


@situation("disk", "memory", "busy peers", memory_limit="500MB")
def spilling(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Results are larger than the memory of the workers."""
    parts = spread(client, array, [40] * 24)
    wait(parts)
    client.gather(client.map(lambda part: float(part[0]), parts, pure=False))


@situation("busy peers", "link", "placement")
def moving_data(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Tasks are restricted to the worker that has none of their data."""
    workers = list(client.scheduler_info()["workers"])
    parts = [client.submit(array, vary(chance, 24), workers=[workers[0]], pure=False) for _ in range(6)]
    wait(parts)
    client.gather([client.submit(len, part, workers=[workers[1]], pure=False) for part in parts])


@situation("scheduler")
def slow_scheduler(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A plugin makes each transition of a task slow."""
    length = vary(chance, 0.004)

    class Slow(distributed.SchedulerPlugin):
        name = "slow"

        def transition(self, key: Any, start: str, finish: str, *args: Any, **more: Any) -> None:
            burn(length)

    client.register_plugin(Slow())
    client.gather(spread(client, spin, [0.001] * 150))


@situation("worker lag", "interpreter")
def blocked_loop(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A callback blocks the event loop of each worker again and again."""

    def block(dask_worker: Any) -> None:
        from tornado.ioloop import PeriodicCallback

        callback = PeriodicCallback(lambda: time.sleep(0.05), 60)
        callback.start()
        dask_worker.blocking = callback

    client.run(block)
    future = client.submit(int, 1, pure=False)
    for _ in range(30):
        future = client.submit(lambda x: x, future, pure=False)
    future.result()
