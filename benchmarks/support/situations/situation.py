"""What a situation declares, and what its tasks do.

    @situation("locks", place=WORKERS, threads_per_worker=2)
    def lock(client: Client, cluster: LocalCluster, chance: random.Random) -> None:
        \"""All tasks want one lock, so they run one after another. (URL of the thread it comes from)\"""
        ...

The decorated function is the recorded block. Where only the run decides the place of the truth, it returns
that (``worker_at`` gives a worker's name). Sizes, numbers and durations come from ``chance``, the seed's
generator.

The truth follows from the code of the situation. It is written before any output has been seen.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

CLIENT, SCHEDULER = "client", "scheduler"
WORKERS = "worker-*"
"""Any worker: all do the same, so whichever the critical path leads through is right."""
NOWHERE = ""
"""No process of the cluster."""

USUAL_PLACES = {
    "client code": (CLIENT,),
    "client data": (CLIENT,),
    "graphs": (CLIENT, SCHEDULER),
    "results": (CLIENT,),
    "answers": (CLIENT,),
    "between computations": (NOWHERE, CLIENT),
    "scheduler": (SCHEDULER,),
    "no worker": (NOWHERE, WORKERS),  # those that it was waited for
}
"""Where a bottleneck lies, if neither the situation nor its run says so. All others lie at workers."""

Place = str | tuple[str, ...]
Act = Callable[[Client, LocalCluster, random.Random], Place | None]
Surroundings = Callable[[Client, LocalCluster, random.Random], contextlib.AbstractContextManager[Any]]
Connection = Callable[[LocalCluster], contextlib.AbstractContextManager[Client]]


@dataclass(frozen=True)
class Situation:
    """What happens, and what a right first answer names."""

    act: Act
    """The recorded block."""

    truth: tuple[str, ...]
    """Names of the bottlenecks, any of which is a right first answer."""

    place: Place | None = None
    """Where the first one lies; if None, its usual place."""

    around: Surroundings | None = None
    """What goes on before, during and after the recorded block."""

    connect: Connection = Client
    """Opens the client that is recorded."""

    from_shell: bool = False
    """Is it `dasklab record`, in another process, that records?"""

    config: dict[str, Any] = field(default_factory=dict)
    """Dask's configuration of client and cluster."""

    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the cluster."""

    advice: tuple[str, ...] | None = None
    """Titles of rules of which one must speak; empty if none may; None if nobody decided."""

    wrong_advice: tuple[str, ...] = ()
    """Titles of rules that must not speak."""

    def false_advice(self, titles: list[str]) -> list[str]:
        """Return the titles that must not be given. Advice on CPUs may be right on any machine."""
        return [
            title
            for title in titles
            if title in self.wrong_advice or (self.advice == () and "CPU" not in title)
        ]

    def misses_advice(self, titles: list[str]) -> bool:
        """Say whether one of some titles had to be given, and was not."""
        return bool(self.advice) and not set(self.advice or ()) & set(titles)


SITUATIONS: dict[str, Situation] = {}


def situation(
    *truth: str,
    place: Place | None = None,
    around: Surroundings | None = None,
    connect: Connection = Client,
    from_shell: bool = False,
    config: dict[str, Any] | None = None,
    advice: tuple[str, ...] | None = None,
    wrong_advice: tuple[str, ...] = (),
    **options: Any,
) -> Callable[[Act], Act]:
    """Add a function to the situations. The arguments are the fields of ``Situation``."""

    def add(act: Act) -> Act:
        assert act.__name__ not in SITUATIONS, f"two situations are called {act.__name__}"
        SITUATIONS[act.__name__] = Situation(
            act, truth, place, around, connect, from_shell, config or {}, options, advice, wrong_advice
        )
        return act

    return add


def is_right_place(bottleneck: str, place: str, truth: Place | None) -> bool:
    """Does the place belong to the truth?"""
    if truth is None:
        truth = USUAL_PLACES.get(bottleneck, (WORKERS,))
    allowed = (truth,) if isinstance(truth, str) else truth
    return place in allowed or (WORKERS in allowed and place.startswith("worker-"))


def vary(chance: random.Random, value: float) -> float:
    """Return the value times a random factor between 0.75 and 1.5."""
    return value * chance.uniform(0.75, 1.5)


def spread(client: Client, function: Callable[..., Any], *values: Any) -> list[Any]:
    """Submit a task for each value."""
    return list(client.map(function, *values, pure=False))


def worker_at(cluster: LocalCluster, address: str) -> str:
    """Return the name by which an explanation calls a worker of the cluster."""
    return f"worker-{cluster.scheduler_info['workers'][address]['name']}"


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


def burn(seconds: float) -> None:
    """Use a CPU until so much time has passed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def array(megabytes: float, *after: Any) -> Any:
    """Return random numbers of this size."""
    return np.random.default_rng(1).random(int(megabytes * 125_000))
