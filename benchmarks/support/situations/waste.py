"""Time that a better program would not spend: the same work again, first times, stragglers, slow objects."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from dask import delayed
from distributed import Client, LocalCluster, wait

from .situation import rest, situation, spin, spread, vary, worker_at


@situation("outside", n_workers=3, advice=("few long tasks",), wrong_advice=("one long task", "skew of data"))
def two_stragglers(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Two of 62 tasks of one kind take much longer than the others, and begin last; a thread idles meanwhile.

    To be said: 2 of 62 tasks are long, and what they cost at the end. Right advice: split them, or begin with
    them. Wrong: one long task, skew of the data. (https://github.com/dask/distributed/issues/2835)
    """
    long_s = vary(chance, 1.4)
    client.gather(spread(client, rest, [0.03] * 60 + [long_s, long_s]))


@situation("slow worker", "outside")
def slow_storage_at_one_worker(client: Client, cluster: LocalCluster, chance: random.Random) -> str:
    """The same tasks wait for storage for longer on one of two workers; each has a half of them.

    To be said: this worker is slower for the same kind of task. (https://github.com/LiberTEM/LiberTEM/issues/1107)
    """
    fast, slow = sorted(client.scheduler_info()["workers"])
    length = vary(chance, 0.16)

    def read(number: int) -> int:
        from distributed import get_worker

        rest(length if get_worker().address == slow else 0.03)
        return number

    futures = [
        future
        for worker in (fast, slow)
        for future in client.map(read, range(18), workers=[worker], pure=False)
    ]
    client.gather(futures)
    return worker_at(cluster, slow)


@situation("computing", wrong_advice=("a slow worker",))
def first_task_imports(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The first task of each worker imports a module that computes for more than a second.

    To be said: the first task of each worker took much longer than its later ones. Wrong: a slow worker.
    (https://github.com/dask/distributed/issues/945, https://github.com/LiberTEM/LiberTEM/issues/218)
    """
    module = f"heavy_{chance.randrange(10**9)}"

    def analyse(number: int, folder: str) -> int:
        import importlib
        import sys

        if folder not in sys.path:
            sys.path.insert(0, folder)
        importlib.import_module(module)
        spin(0.04)
        return number

    with tempfile.TemporaryDirectory() as folder:
        text = f"import time\nuntil = time.thread_time() + {vary(chance, 1.2)}\n"
        Path(folder, f"{module}.py").write_text(text + "while time.thread_time() < until:\n    pass\n")
        client.gather(client.map(analyse, range(16), folder=folder, pure=False))


@situation("outside", advice=("the same computed again",))
def same_keys_in_five_computes(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Five computations begin with the same eight tasks, whose results nobody keeps.

    To be said: ``load`` ran 40 times for 8 keys although nothing was lost. Right advice: persist.
    (https://github.com/dask/dask/issues/2614)
    """
    length = vary(chance, 0.12)
    parts = [delayed(rest)(length, dask_key_name=f"load-{number}") for number in range(8)]
    for number in range(5):
        client.compute(delayed(pow)(delayed(sum)(parts), number)).result()


@situation("outside", advice=("one result at a time",), wrong_advice=("skew of data", "restricted tasks"))
def one_call_at_a_time(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client submits a task and waits for it, 20 times in a row.

    To be said: only one task was there at a time, so a half of the threads had nothing to do. Right advice:
    submit all, then gather. Wrong: skew; restrictions to workers.
    """
    length = vary(chance, 0.1)
    for _ in range(20):
        client.submit(rest, length, pure=False).result()


class Model:
    """An object that computes for a while when it is deserialised."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        spin(self.seconds)


def pair(left: Model, right: Model) -> float:
    """Use two models."""
    return left.seconds + right.seconds


@situation("busy peers", wrong_advice=("avoidable transfers", "slow link"))
def slow_unpickling_on_workers(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Each task needs two small objects of different workers; to deserialise one takes a long time.

    One of the two has to move wherever the task runs. To be said: deserialising, on workers. Wrong: a better
    placement; the network. (https://github.com/dask/distributed/issues/3925)
    """
    workers = sorted(client.scheduler_info()["workers"])
    length = vary(chance, 0.2)
    sides = [
        client.map(Model, [length] * 8, workers=[worker], allow_other_workers=False, pure=False)
        for worker in workers
    ]
    wait([model for side in sides for model in side])
    client.gather(spread(client, pair, *sides))


@situation("client data", advice=("many scattered objects",))
def scattered_one_by_one(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client scatters numbers in a loop, one call each.

    Right advice: scatter few large objects. (https://github.com/dask/distributed/issues/2316)
    """
    parts = [client.scatter(number, hash=False) for number in range(int(vary(chance, 200)))]
    client.submit(sum, parts, pure=False).result()


@situation("graphs", advice=("large graphs",))
def large_closures(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Each function that is submitted has a table of some 20 MB in its closure.

    Right advice: load data in tasks, or scatter it once.
    """
    table = random.Random(1).randbytes(int(vary(chance, 20_000_000)))
    for number in range(8):
        client.submit(lambda number=number: len(table) + number, pure=False).result()
