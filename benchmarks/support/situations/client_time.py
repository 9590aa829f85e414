"""What the client does beside its computations: before, between and after them, and without the cluster."""

from __future__ import annotations

import importlib
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import dask
from dask import delayed
from distributed import Client, LocalCluster, as_completed, fire_and_forget

from .situation import rest, situation, spin, spread, vary


@situation("client code")
def files_opened_one_by_one(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client opens files one after another, which takes long for each, before it computes anything.

    A slow file system is a sleep here. (https://github.com/pydata/xarray/issues/7697)
    """
    latency_s, names = vary(chance, 0.12), []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(20):
            path = Path(folder, f"{number}.txt")
            path.write_text(str(number))
            time.sleep(latency_s)
            names.append(path.read_text())
    client.gather(spread(client, spin, [0.04] * len(names)))


@situation("client code")
def slow_loop_over_results(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A loop over as_completed works on each result for longer than the tasks take.

    The cluster is idle while the loop goes on. (https://github.com/dask/distributed/issues/569)
    """
    length_s = vary(chance, 0.15)
    for future in as_completed(spread(client, rest, [0.05] * 16)):
        future.result()
        spin(length_s)


@situation("client code")
def plotting_after(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client computes a result and then draws it, which takes longer.

    Drawing is computing in the client's process here. (https://github.com/dask/distributed/issues/7066)
    """
    result = client.gather(spread(client, rest, [0.05] * 10))
    spin(vary(chance, 2.0), result)


@situation("client code")
def import_before(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client imports a library in the block, which takes seconds, before its first computation.

    The library is a module that computes and sleeps. (https://github.com/dask/distributed/issues/3182)
    """
    name, length_s = f"slow_library_{time.time_ns()}", vary(chance, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{name}.py").write_text(
            f"import time\nstop = time.thread_time() + {length_s}\n"
            f"while time.thread_time() < stop: pass\ntime.sleep({length_s})\n"
        )
        sys.path.insert(0, folder)
        importlib.import_module(name)
        sys.path.remove(folder)
    client.gather(spread(client, rest, [0.05] * 10))


@situation("client code")
def processing_between(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client computes in its own process after each of three computations of the cluster.

    Each time the cluster waits for it. (https://github.com/dask/distributed/issues/7066)
    """
    for _ in range(3):
        results = client.gather(spread(client, rest, [0.1] * 6))
        spin(vary(chance, 0.7), results)


@situation("computing")
def submit_and_result_in_a_loop(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A loop submits one task and waits for its result before it submits the next.

    So one of two workers works at a time. (https://docs.dask.org/en/stable/delayed-best-practices.html)
    """
    length_s = vary(chance, 0.06)
    for _ in range(30):
        client.submit(spin, length_s, pure=False).result()


@situation("client code")
def local_threads_only(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The program computes with the threaded scheduler of its own process, though it has a client.

    Nothing runs on the cluster. (https://github.com/astronomy-commons/lsdb/pull/1615)
    """
    length_s = vary(chance, 0.25)
    dask.compute(
        *[delayed(rest)(length_s, number) for number in range(16)], scheduler="threads", num_workers=2
    )


@situation("client code")
def local_scheduler_beside_the_cluster(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A short computation runs on the cluster, and a longer one with the synchronous scheduler.

    The cluster waits for the second one. (https://github.com/dask/dask/issues/4618)
    """
    client.gather(spread(client, rest, [0.1] * 6))
    length_s = vary(chance, 0.2)
    with dask.config.set(scheduler="synchronous"):
        dask.compute(*[delayed(spin)(length_s, number) for number in range(8)])


@situation("client code")
def nothing_ran(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The block only sleeps: it builds a lazy computation, and never starts it.

    A user forgot to call compute. (https://docs.dask.org/en/stable/delayed-best-practices.html)
    """
    delayed(spin)(1.0)
    time.sleep(vary(chance, 1.5))


@situation("client code")
def fire_and_forget_unfinished(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client starts tasks that nobody waits for, sleeps, and leaves the block before they have ended.

    Some 30 tasks of 0.4 s need 6 s on two threads, of which at most 1.5 s pass.
    (https://distributed.dask.org/en/stable/api.html#distributed.fire_and_forget)
    """
    fire_and_forget(spread(client, rest, [vary(chance, 0.4)] * 30))
    time.sleep(vary(chance, 1.0))


@situation("outside", "unmetered tasks")
def client_closed_inside(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Tasks sleep, and then the client is closed inside the block, so its recorder cannot fetch the rest.

    What the tasks did may be unknown, but they did not compute.
    (https://github.com/dask/distributed/issues/2766)
    """
    client.gather(spread(client, rest, [vary(chance, 0.25)] * 10))
    client.close()


@situation("outside")
def threads_of_the_client(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Four threads of the client's process compute at the same time through one client.

    Their tasks sleep, and share two workers. (https://github.com/PrefectHQ/prefect/issues/178)
    """
    length_s = vary(chance, 0.2)
    threads = [
        threading.Thread(target=lambda: client.gather(spread(client, rest, [length_s] * 5))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@situation("answers")
def run_inside(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client calls a function on all workers with client.run, which blocks their event loops.

    A short computation follows. (https://distributed.dask.org/en/stable/api.html#distributed.Client.run)
    """
    client.run(time.sleep, vary(chance, 1.5))
    client.gather(spread(client, rest, [0.05] * 6))


# Without the program: only the cluster was recorded.


@situation("outside", from_shell=True)
def shell_several_computations(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """`dasklab record` watches a program whose four computations follow one another at once.

    Their tasks sleep. (docs/how-to/record-a-cluster.md)
    """
    for _ in range(4):
        client.gather(spread(client, rest, [vary(chance, 0.15)] * 10))


@situation("between computations", from_shell=True)
def shell_pauses_between(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """`dasklab record` watches a program that sleeps between four short computations.

    The recorder sees the computations only. (docs/how-to/record-a-cluster.md)
    """
    for _ in range(4):
        client.submit(spin, 0.15, pure=False).result()
        time.sleep(vary(chance, 0.8))


@situation("computing", from_shell=True)
def shell_watches_one_computation(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """`dasklab record` watches a program that computes once, after a pause of a second.

    The pause is before the first computation, so it is no part of the record.
    (docs/how-to/record-a-cluster.md)
    """
    time.sleep(1.0)
    client.gather(spread(client, spin, [vary(chance, 0.1)] * 24))
