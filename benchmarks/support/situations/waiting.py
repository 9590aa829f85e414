"""Threads and event loops that are kept from working: locks, the interpreter, other threads, other tasks."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import numpy as np
from dask import delayed
from dask.utils import SerializableLock
from distributed import Client, LocalCluster, Queue, Variable, get_client

from .situation import CLIENT, WORKERS, rest, situation, spread, vary, worker_at


@situation("locks", "outside", threads_per_worker=3)
def lock_of_the_process(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Threads of a worker write under one lock of their process, as with an HDF5 library.

    Dask knows nothing of the lock: "outside of Dask" is true as well. To be said: tasks waited for a lock (of
    the process), or took longer than they would have alone. Wrong: storage or a service is slow.
    (https://github.com/pydata/xarray/issues/2912)
    """
    length = vary(chance, 0.1)

    def write(number: int, folder: str, lock: SerializableLock) -> int:
        with lock, Path(folder, "one-file").open("ab") as file:
            rest(length)
            file.write(bytes(1000))
        return number

    with tempfile.TemporaryDirectory() as folder:
        lock = SerializableLock("one-file")
        client.gather(client.map(write, range(24), folder=folder, lock=lock, pure=False))


@situation("interpreter", "worker lag", threads_per_worker=3)
def c_code_keeps_the_interpreter(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A library in C holds the interpreter while it waits, so one of three threads goes on at a time.

    To be said: the interpreter was held. Wrong: computing. (https://github.com/dask/distributed/issues/2942)
    """
    microseconds = int(vary(chance, 150_000))

    def call_library(number: int) -> int:
        ctypes.PyDLL(None).usleep(microseconds)
        return number

    client.gather(spread(client, call_library, range(18)))


@situation("answers", "worker lag", place=(CLIENT, WORKERS))
def client_run_blocks_workers(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """client.run sleeps in the event loops of all workers, which have tasks to run.

    To be said: the line with client.run, or that event loops of workers were blocked for so long. Wrong: that
    something there holds the interpreter.
    """
    futures = spread(client, rest, [0.05] * 20)
    client.run(time.sleep, vary(chance, 2.0))
    client.gather(futures)


@contextlib.contextmanager
def one_disk(client: Client, cluster: LocalCluster, chance: random.Random) -> Iterator[None]:
    """Give the first worker a resource that no other has."""

    async def give(dask_worker: Any) -> None:
        await dask_worker.set_resources(DISK=1)

    client.run(give, workers=[min(client.scheduler_info()["workers"])])
    yield


@situation("outside", around=one_disk, advice=("restricted tasks",))
def resource_of_one_worker(client: Client, cluster: LocalCluster, chance: random.Random) -> str:
    """All tasks need a resource that one of two workers has.

    To be said: this worker did all the work. Right advice: do not restrict tasks, here by a resource.
    """
    client.gather(client.map(rest, [vary(chance, 0.12)] * 14, resources={"DISK": 1}, pure=False))
    return worker_at(cluster, min(client.scheduler_info()["workers"]))


@situation("locks", advice=("events, queues and variables",), wrong_advice=("one long task",))
def variable_that_is_set_late(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Two tasks keep their threads until the client has set a variable; others want these threads.

    To be said: which variable. Right advice: submit them later, or secede. Wrong: one long task.
    """

    def configure(number: int) -> Any:
        return Variable("settings").get()

    futures = spread(client, configure, range(2))
    futures += client.map(rest, [0.1] * 6, pure=False)
    time.sleep(vary(chance, 1.5))
    Variable("settings").set(1)
    client.gather(futures)


@situation("locks", "outside", threads_per_worker=2, wrong_advice=("one long task",))
def queue_between_tasks(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """One task fills a queue slowly, three others wait for what is in it.

    The tasks wait for the queue as long as the producer waits for its source, so either may be named. To be
    said: which queue. Wrong: one long task that should be split, if it is a consumer.
    """
    length = vary(chance, 0.3)

    def produce(number: int) -> None:
        queue = Queue("parts")
        for part in range(6):
            rest(length)
            queue.put(part)

    def consume(number: int) -> int:
        queue = Queue("parts")
        return sum(queue.get() for _ in range(2))

    client.gather([client.submit(produce, 1, pure=False), *spread(client, consume, range(3))])


@situation("nested tasks", "outside", wrong_advice=("skew of data",))
def compute_inside_tasks(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Tasks call dask.compute, which gives their thread back until the inner tasks are done.

    Wrong: skew.
    """
    length = vary(chance, 0.12)

    def outer(number: int) -> float:
        get_client()  # in the first call of dask.compute two threads at once may find none
        parts = [delayed(rest)(length, number, part) for part in range(5)]
        return float(sum(dask.compute(*parts)))

    client.gather(spread(client, outer, range(4)))


@contextlib.contextmanager
def pandas_imported(client: Client, cluster: LocalCluster, chance: random.Random) -> Iterator[None]:
    """Let all workers import pandas before the recording."""
    client.run(importlib.import_module, "pandas")
    yield


@situation("interpreter", around=pandas_imported, threads_per_worker=3, advice=("interpreter",))
def strings_as_objects(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Three threads of each worker handle strings as Python objects, which needs the interpreter.

    Right advice: more processes with fewer threads each.
    """
    rows = int(vary(chance, 300_000))

    def clean(number: int) -> int:
        import pandas as pd

        names = pd.Series([f"shop {row % 100}" for row in range(rows)], dtype=object)
        return int(names.map(lambda name: len(name.upper().split())).sum())

    client.gather(spread(client, clean, range(18)))


@situation(
    "cpu",
    threads_per_worker=4,
    config={"distributed.nanny.pre-spawn-environ.OPENBLAS_NUM_THREADS": 8},
    advice=("threads of libraries", "too few CPUs"),
)
def blas_with_its_own_threads(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Eight threads of workers multiply matrices, each with several threads of the BLAS library.

    Right advice: OMP_NUM_THREADS=1, or fewer threads. (https://github.com/dask/dask/issues/2653)
    """
    size = int(vary(chance, 1200))

    def multiply(number: int) -> float:
        left = np.random.default_rng(number).random((size, size))
        for _ in range(3):
            left = left @ left
            left /= left.max()
        return float(left.sum())

    client.gather(spread(client, multiply, range(12)))


@situation("cpu", advice=("threads of libraries", "too few CPUs"))
def threads_inside_tasks(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Each task sorts with 16 threads of its own.

    Right advice: fewer threads.
    """
    rows = int(vary(chance, 1_000_000))

    def sort_parts(number: int) -> float:
        parts = [np.random.default_rng(part).random(rows) for part in range(16)]
        with ThreadPoolExecutor(16) as threads:
            return float(sum(part[0] for part in threads.map(np.sort, parts)))

    client.gather(spread(client, sort_parts, range(8)))
