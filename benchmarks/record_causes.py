"""Does the explanation of a record name the right bottleneck? Everyday situations with known truth.

    python benchmarks/record_causes.py [--only lock actor] [--seeds 3] [--out FOLDER]

Each situation runs on a fresh cluster on this machine and is recorded with `dasklab.record`; the explanation
does not know which one it is. It is right if the first bottleneck on the critical path is (one of) the
situation's. Sizes, numbers and durations differ from seed to seed.

Waiting for a CPU is left out, except where it is the truth: on a busy machine every situation has it. Where
it is more than half of the record, nothing else can be seen: the case is disturbed, and not counted. Prints a
line per case with what ranks first, and idle time beside work, on the path and of threads; then how many were
right.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dasklab
import distributed
import numpy as np
from dask import delayed
from dasklab.breakdown.model.causes import Group, Kind
from dasklab.breakdown.show.explain import explain
from dasklab.results.run import open_trial
from distributed import Client, Event, LocalCluster, Lock, Queue, Semaphore, get_client, wait, worker_client

Act = Callable[[Client, LocalCluster, random.Random], None]


@dataclass(frozen=True)
class Situation:
    """What happens, and the names of the bottlenecks that are a right first answer."""

    act: Act
    truth: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)


SITUATIONS: dict[str, Situation] = {}


def situation(*truth: str, **options: Any) -> Callable[[Act], Act]:
    """Add a function to the situations. ``options`` are those of its cluster."""

    def add(act: Act) -> Act:
        SITUATIONS[act.__name__] = Situation(act, truth, options)
        return act

    return add


def vary(chance: random.Random, value: float) -> float:
    """Return the value times a random factor between 0.75 and 1.5."""
    return value * chance.uniform(0.75, 1.5)


# What tasks do


def spin(seconds: float, *after: Any) -> float:
    """Compute for so long, in Python."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    return seconds


def rest(seconds: float, *after: Any) -> float:
    """Wait for something outside."""
    time.sleep(seconds)
    return seconds


def array(megabytes: float, *after: Any) -> Any:
    return np.random.default_rng(1).random(int(megabytes * 125_000))


def total(left: Any, right: Any) -> float:
    return float(left.sum() + right.sum())


def spread(client: Client, function: Callable[..., Any], *values: Any) -> list[Any]:
    return list(client.map(function, *values, pure=False))


# The situations


@situation("computing")
def compute_bound(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    client.gather(spread(client, spin, [vary(chance, 0.03)] * 60))


@situation("computing")
def one_long_task(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    client.gather(spread(client, spin, [0.01] * 30 + [vary(chance, 1.5)]))


@situation("computing")
def two_computes(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    for _ in range(2):
        client.gather(spread(client, spin, [vary(chance, 0.2)] * 6))


@situation("computing")
def chain(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    future = client.submit(spin, 0.1, pure=False)
    for _ in range(12):
        future = client.submit(spin, 0.1, future, pure=False)
    future.result()


@situation("computing")
def tasks_on_one_worker(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    worker = next(iter(client.scheduler_info()["workers"]))
    client.gather(client.map(spin, [vary(chance, 0.05)] * 30, workers=[worker], pure=False))


@situation("computing")
def persist_and_wait(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    (future,) = client.compute([delayed(sum)([delayed(spin)(vary(chance, 0.05)) for _ in range(40)])])
    wait(future)


@situation("outside")
def waiting_outside(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    client.gather(spread(client, rest, [vary(chance, 0.2)] * 20))


@situation("locks")
def lock(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    length = vary(chance, 0.1)

    def locked(number: int) -> int:
        with Lock("the lock"):
            spin(length)
        return number

    client.gather(spread(client, locked, range(12)))


@situation("locks")
def semaphore(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    places, length = Semaphore(max_leases=1, name="places"), vary(chance, 0.1)

    def limited(number: int, places: Semaphore) -> int:
        with places:
            time.sleep(length)
        return number

    client.gather([client.submit(limited, n, places, pure=False) for n in range(12)])


@situation("locks")
def event(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    def waiting(number: int) -> bool:
        return bool(Event("go").wait())

    futures = spread(client, waiting, range(2))
    time.sleep(vary(chance, 1.5))
    Event("go").set()
    client.gather(futures)


@situation("locks")
def queue(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    def take(number: int) -> Any:
        return Queue("work").get()

    futures, work = spread(client, take, range(2)), Queue("work")
    for number in range(2):
        time.sleep(vary(chance, 0.8))
        work.put(number)
    client.gather(futures)


@situation("nested tasks", "computing")
def client_inside_tasks(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    length = vary(chance, 0.05)

    def outer(number: int) -> float:
        with worker_client() as inner:
            return float(sum(inner.gather(inner.map(spin, [length] * 5, pure=False))))

    client.gather(spread(client, outer, range(4)))


@situation("nested tasks", "computing", threads_per_worker=2)
def tasks_that_keep_their_thread(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    length = vary(chance, 0.5)

    def outer(number: int) -> float:
        return float(get_client().submit(rest, length, pure=False).result())

    for _ in range(3):
        client.submit(outer, 1, pure=False).result()


@situation("client code")
def code_between_computes(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    for _ in range(4):
        client.gather(spread(client, spin, [0.02] * 4))
        time.sleep(vary(chance, 0.4))


@situation("graphs")
def large_graph(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    import dask.array as da

    client.compute(da.ones((30_000, 30_000), chunks=(300, 300)).sum()).cancel()
    x = da.random.random((8000, 8000), chunks=(80, 8000))
    client.persist(x.rechunk((8000, 80)).map_blocks(lambda block: block[:1])).compute()


@situation("graphs")
def large_arguments(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    data = bytes(int(vary(chance, 32_000_000)))
    for number in range(6):
        client.submit(len, data + bytes([number]), pure=False).result()


@situation("client data")
def scatter_to_all(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    data = client.scatter(bytes(int(vary(chance, 96_000_000))), broadcast=True)
    client.submit(len, data, pure=False).result()


@situation("client data")
def scatter_many(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    data = client.scatter(list(range(int(vary(chance, 1500)))), hash=False)
    client.submit(sum, data, pure=False).result()


@situation("client data")
def gather_much(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    client.gather(spread(client, array, [vary(chance, 16)] * 16))


@situation("scheduler", "worker lag")
def tiny_tasks(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    client.gather(spread(client, int, range(int(vary(chance, 1500)))))


@situation("interpreter", threads_per_worker=4)
def interpreter_lock(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    client.gather(spread(client, spin, [vary(chance, 0.1)] * 24))


@situation("garbage collection")
def garbage(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    def allocate(number: int) -> int:
        import gc

        objects = [[i] for i in range(200_000)]
        for _ in range(6):
            gc.collect()
        return len(objects)

    client.gather(spread(client, allocate, range(12)))


def burn(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@situation("cpu")
def starved(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    others = [multiprocessing.Process(target=burn, args=(60,)) for _ in range(8)]
    for other in others:
        other.start()
    client.gather(spread(client, spin, [vary(chance, 0.05)] * 16))
    for other in others:
        other.kill()


@situation("actors")
def actors(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    class Counter:
        total = 0

        def add(self, number: int) -> int:
            time.sleep(0.1)
            self.total += number
            return self.total

    counter = client.submit(Counter, actor=True).result()
    for number in range(int(vary(chance, 15))):
        counter.add(number).result()  # type: ignore[attr-defined] # an actor


@situation("lost results", "computing", "worker lag")
def worker_dies(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    futures = spread(client, spin, [vary(chance, 0.1)] * 30)
    time.sleep(0.6)
    next(iter(cluster.workers.values())).process.process.kill()
    client.gather(futures)


@situation("computing")
def workers_join(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    cluster.scale(1)
    while len(client.scheduler_info()["workers"]) > 1:
        time.sleep(0.05)
    futures = spread(client, spin, [vary(chance, 0.1)] * 30)
    time.sleep(1.0)
    cluster.scale(2)
    client.gather(futures)


@situation("disk", "memory", "busy peers", memory_limit="500MB")
def spilling(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    parts = spread(client, array, [40] * 24)
    wait(parts)
    client.gather(client.map(lambda part: float(part[0]), parts, pure=False))


@situation("busy peers", "link", "placement")
def moving_data(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    workers = list(client.scheduler_info()["workers"])
    parts = [client.submit(array, vary(chance, 24), workers=[workers[0]], pure=False) for _ in range(6)]
    wait(parts)
    client.gather([client.submit(len, part, workers=[workers[1]], pure=False) for part in parts])


@situation("slow worker")
def slow_worker(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    length = vary(chance, 0.15)

    def slow(number: int) -> int:
        from distributed import get_worker

        spin(length if get_worker().name == 1 else 0.02)
        return number

    client.gather(spread(client, slow, range(40)))


@situation("scheduler")
def slow_scheduler(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    length = vary(chance, 0.004)

    class Slow(distributed.SchedulerPlugin):
        name = "slow"

        def transition(self, key: Any, start: str, finish: str, *args: Any, **more: Any) -> None:
            burn(length)

    client.register_plugin(Slow())
    client.gather(spread(client, spin, [0.001] * 150))


@situation("worker lag", "interpreter")
def blocked_loop(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
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


@situation("client code")
def pauses_of_a_notebook(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    for _ in range(3):
        client.submit(spin, 0.2, pure=False).result()
        time.sleep(vary(chance, 0.8))


@situation("computing", "worker lag", "busy peers")
def shuffle(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    import pandas as pd
    from dask import dataframe as dd

    frame = dd.from_pandas(
        pd.DataFrame({"a": np.arange(200_000), "b": np.random.rand(200_000)}), npartitions=12
    )
    frame.shuffle("b").map_partitions(len).compute()


@situation("computing")
def errors_and_retries(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    def fails(number: int) -> int:
        spin(0.05)
        if random.random() < 0.3:
            raise ValueError(number)
        return number

    client.gather(client.map(fails, range(30), retries=20, pure=False))


def judge(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Run a situation, explain its record, compare."""
    case = SITUATIONS[name]
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", **case.options}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        client.gather(spread(client, int, range(4)))
        with dasklab.record(client, folder) as run:
            case.act(client, cluster, random.Random(seed))
    summary = explain(open_trial(folder)).summary
    ranked = [(bottleneck.name, place, round(s, 2)) for bottleneck, place, s in summary.ranked()]
    first = next(name for name, *_ in ranked if name != "cpu" or "cpu" in case.truth)
    starved_s = sum(s for name, _, s in ranked if name == "cpu")
    idle = {
        where: _idle(cells)
        for where, cells in (("path", summary.path_by_cause), ("threads", summary.by_cause))
    }
    return {
        "case": name,
        "truth": case.truth,
        "right": first in case.truth,
        "disturbed": "cpu" not in case.truth and starved_s > summary.makespan_s / 2,
        "ranked": ranked[:4],
        "seconds": round(summary.makespan_s, 2),
        "idle": {where: round(s, 2) for where, s in idle.items()},
        "failures": run.failures,
        "lost": run.lost,
    }


def _idle(cells: Any) -> float:
    """Seconds for which a thread was idle while there was work."""
    return sum(s for cause, s in cells.items() if cause.kind is Kind.IDLE and cause.group is Group.IDLE)


def main() -> None:
    """Run the requested situations and count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=list(SITUATIONS), choices=list(SITUATIONS))
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    verdicts = []
    for seed in range(args.first, args.first + args.seeds):
        for name in args.only:
            with tempfile.TemporaryDirectory() as temporary:
                folder = (args.out or Path(temporary)) / f"{name}-{seed}"
                verdicts.append(judge(name, seed, folder))
            print(json.dumps(verdicts[-1]), flush=True)
    counted = [verdict for verdict in verdicts if not verdict["disturbed"]]
    right = sum(verdict["right"] for verdict in counted)
    print(f"{right} of {len(counted)} right; {len(verdicts) - len(counted)} disturbed")


if __name__ == "__main__":
    main()
