"""Attempts that fail, workers that die with their tasks, results that are lost, tasks that are cancelled.

Beside the first cause, an answer should say what failed; that is what "to be said" lists.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
from distributed import Client, KilledWorker, LocalCluster, wait

from .situation import rest, situation, spin, spread, vary


def fail_first(folder: str, name: str, times: int) -> None:
    """Raise an error the first so many times that this is called with a name."""
    attempts = Path(folder, name)
    failed = attempts.stat().st_size if attempts.exists() else 0
    if failed < times:
        attempts.write_bytes(bytes(failed + 1))
        raise OSError("the file server does not answer")


@situation("outside", advice=())
def attempts_that_fail(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Every third of 24 tasks waits for a service and fails three times before it succeeds.

    To be said: 24 attempts of ``flaky`` failed with OSError. No advice.
    (https://github.com/dask/distributed/issues/852)
    """
    length = vary(chance, 0.1)

    def flaky(number: int, folder: str) -> int:
        rest(length)
        if number % 3 == 0:
            fail_first(folder, str(number), 3)
        return number

    with tempfile.TemporaryDirectory() as folder:
        client.gather(client.map(flaky, range(24), folder=folder, retries=5, pure=False))


@situation("computing", wrong_advice=("one long task", "few long tasks"))
def one_task_fails_five_times(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """One task of 21 computes and fails five times, the others are soon done.

    To be said: 5 attempts of ``unlucky`` failed with OSError, and took 5 / 6 of its time. Wrong: advice to
    split it, because each attempt is short. (https://github.com/dask/distributed/issues/7870)
    """
    length = vary(chance, 0.4)

    def unlucky(folder: str) -> None:
        spin(length)
        fail_first(folder, "unlucky", 5)

    with tempfile.TemporaryDirectory() as folder:
        futures = spread(client, rest, [0.03] * 20)
        client.gather([*futures, client.submit(unlucky, folder, retries=6, pure=False)])


@situation("computing")
def last_task_raises(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The task that needs all others computes, and raises in the end; the client goes on.

    To be said: ``summarise`` failed with ValueError.
    """
    length = vary(chance, 1.0)

    def summarise(parts: list[float]) -> None:
        spin(length)
        raise ValueError("no shop sold anything")

    last = client.submit(summarise, spread(client, spin, [0.03] * 12), pure=False)
    with contextlib.suppress(ValueError):
        last.result()


@situation("outside")
def errors_that_the_client_ignores(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A first computation fails in part and is not looked at; a second and longer one is healthy.

    To be said: 4 tasks ``check`` failed with KeyError. Wrong: failures of ``rest``.
    """
    length = vary(chance, 0.15)

    def check(number: int) -> int:
        rest(0.05)
        return {0: 1, 1: 1, 2: 1, 3: 1}[number]

    wait(spread(client, check, range(8)))
    client.gather(spread(client, rest, [length] * 20))


@situation(
    "outside",
    "unmetered tasks",
    memory_limit="400MB",
    config={"distributed.scheduler.allowed-failures": 1},
    wrong_advice=("skew of data", "restricted tasks"),
)
def killed_through_memory(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A task needs more memory than a worker may have: the nanny ends one worker, then the other.

    The task sleeps between its allocations. To be said: ``eat`` was given up after it had run on 2 workers,
    which were ended for their memory. Wrong: advice about skew. (https://github.com/dask/dask/issues/11346)
    """
    pause_s = vary(chance, 0.1)

    def eat() -> int:
        arrays = []
        for _ in range(40):
            arrays.append(np.ones(20 * 125_000))
            time.sleep(pause_s)
        return len(arrays)

    eater = client.submit(eat, pure=False, priority=1)
    futures = spread(client, rest, [0.1] * 6)
    with contextlib.suppress(KilledWorker):
        eater.result()
    wait(futures)


@situation("outside", wrong_advice=("skew of data", "restricted tasks"))
def worker_process_exits(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A library ends the process of a worker once; its nanny starts another one.

    To be said: a worker left and joined again, some results were computed again, and one worker
    worked alone meanwhile. Wrong: advice about skew.
    """
    length = vary(chance, 0.12)

    def fragile(number: int, folder: str) -> int:
        rest(length)
        if number == 6 and not Path(folder, "crashed").exists():
            Path(folder, "crashed").touch()
            os._exit(1)
        return number

    with tempfile.TemporaryDirectory() as folder:
        client.gather(client.map(fragile, range(24), folder=folder, pure=False))


@situation("lost results", "outside")
def lost_results_are_needed_later(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """All results of one worker are lost between two computations; the second one needs them again.

    The results take as long the second time as the first. To be said: how many were computed again.
    """
    results = spread(client, rest, [vary(chance, 0.4)] * 8)
    wait(results)
    next(iter(cluster.workers.values())).process.process.kill()
    client.submit(sum, results, pure=False).result()


@situation("outside")
def cancelled_futures(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Most of the submitted tasks are cancelled before they begin.

    To be said: the client cancelled 30 tasks. Wrong: results that were lost, or tasks that are unfinished.
    """
    futures = spread(client, rest, [vary(chance, 0.15)] * 42)
    time.sleep(0.2)
    client.cancel(futures[12:])
    client.gather(futures[:12])


@situation("outside")
def failures_of_another_client(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Another client's tasks fail while the recorded client's are healthy.

    To be said: another client's tasks had a part of the threads. Wrong: failures as if they were one's own.
    """
    length = vary(chance, 0.12)

    def refuse(number: int) -> None:
        rest(0.1)
        raise PermissionError(number)

    with Client(cluster.scheduler_address, set_as_default=False) as other:
        theirs = spread(other, refuse, range(8))
        client.gather(spread(client, rest, [length] * 24))
        wait(theirs)
