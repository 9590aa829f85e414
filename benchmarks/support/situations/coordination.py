"""Tasks that wait for each other: locks, queues, actors, tasks inside tasks."""

from __future__ import annotations

import random
import time
from typing import Any

from distributed import Client, Event, LocalCluster, Lock, Queue, Semaphore, get_client, worker_client

from .situation import CLIENT, WORKERS, rest, situation, spin, spread, vary


@situation("locks")
def lock(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """All tasks want one lock, so they run one after another."""
    length = vary(chance, 0.1)

    def locked(number: int) -> int:
        with Lock("the lock"):
            spin(length)
        return number

    client.gather(spread(client, locked, range(12)))


@situation("locks")
def semaphore(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A semaphore lets one task in at a time."""
    places, length = Semaphore(max_leases=1, name="places"), vary(chance, 0.1)

    def limited(number: int, places: Semaphore) -> int:
        with places:
            time.sleep(length)
        return number

    client.gather([client.submit(limited, n, places, pure=False) for n in range(12)])


@situation("locks")
def event(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Tasks keep their threads until the client sets an event."""

    def waiting(number: int) -> bool:
        return bool(Event("go").wait())

    futures = spread(client, waiting, range(2))
    time.sleep(vary(chance, 1.5))
    Event("go").set()
    client.gather(futures)


@situation("locks")
def queue(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Tasks keep their threads until the client puts something into a queue."""

    def take(number: int) -> Any:
        return Queue("work").get()

    futures, work = spread(client, take, range(2)), Queue("work")
    for number in range(2):
        time.sleep(vary(chance, 0.8))
        work.put(number)
    client.gather(futures)


@situation("nested tasks", "computing")
def client_inside_tasks(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """Tasks submit tasks through worker_client, and wait for them."""
    length = vary(chance, 0.05)

    def outer(number: int) -> float:
        with worker_client() as inner:
            return float(sum(inner.gather(inner.map(spin, [length] * 5, pure=False))))

    client.gather(spread(client, outer, range(4)))


@situation("nested tasks", "computing", threads_per_worker=2)
def tasks_that_keep_their_thread(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """A task submits a task and waits for its result without giving its thread back."""
    length = vary(chance, 0.5)

    def outer(number: int) -> float:
        return float(get_client().submit(rest, length, pure=False).result())

    for _ in range(3):
        client.submit(outer, 1, pure=False).result()


@situation("actors", place=(CLIENT, WORKERS))
def actors(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
    """The client waits for methods of an actor that sleep."""

    class Counter:
        total = 0

        def add(self, number: int) -> int:
            time.sleep(0.1)
            self.total += number
            return self.total

    counter = client.submit(Counter, actor=True).result()
    for number in range(int(vary(chance, 15))):
        counter.add(number).result()  # type: ignore[attr-defined] # an actor
