"""Objects that take long to unpickle or to measure."""

from __future__ import annotations

import random
import time
from typing import Any

from distributed import Client, LocalCluster

from .situation import CLIENT, rest, situation, spin, spread, vary, worker_at


class SlowToUnpickle:
    """What takes so long to be made from its pickle."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __reduce__(self) -> Any:
        return unpickled, (self.seconds,)


def unpickled(seconds: float) -> SlowToUnpickle:
    """Make the object from its pickle."""
    spin(seconds)
    return SlowToUnpickle(seconds)


class SlowToMeasure:
    """What takes so long to say how large it is."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __sizeof__(self) -> int:
        time.sleep(self.seconds)
        return 1000


@situation("client data", "results", place=CLIENT)
def results_slow_to_unpickle(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client unpickles 14 small results, and each takes long.

    The workers make them at once. (https://github.com/dask/distributed/issues/3925)
    """
    client.gather(spread(client, SlowToUnpickle, [vary(chance, 0.15)] * 14))


@situation("worker lag", "measured results")
def results_slow_to_measure(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Workers ask each result for its size when its task has ended, and the answer takes long.

    Nothing is spilled. (https://github.com/dask/dask/issues/5002)
    """
    results = spread(client, SlowToMeasure, [vary(chance, 0.1)] * 20)
    client.gather(spread(client, lambda result: 1, results))


@situation("busy peers")
def data_slow_to_unpickle(client: Client, cluster: LocalCluster, chance: random.Random) -> str:
    """One worker makes objects that the other needs, and has to unpickle for long.

    The tasks themselves sleep for a moment. (https://github.com/dask/distributed/issues/3925)
    """
    first, second = client.scheduler_info(n_workers=-1)["workers"]
    lengths_s = [vary(chance, 0.2)] * 10
    parts = client.map(SlowToUnpickle, lengths_s, workers=[first], pure=False)
    client.gather(client.map(lambda part: rest(0.02), parts, workers=[second], pure=False))
    return worker_at(cluster, second)
