"""Dask's peer-to-peer shuffles: what tasks send to each other themselves, and the barrier that waits for it.

As ``distributed.shuffle`` does it: a transfer task cuts its piece into shards, one for each partition that
comes out, and is done; they are sent behind its back, to the workers that Dask's own plugin has chosen. The
barrier task is done when all of them are there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from lab.sim.kernel import Kernel
from lab.sim.network import Channel, Network

BARRIER = "shuffle-barrier"  # the prefix of such a task

Go = Callable[[], None]
# A task's key and machine to the shuffle that it is a transfer of and where its shards belong.
Places = Callable[[Any, str], tuple[str, Collection[str]] | None]


class Shuffle:
    """All shards of a cluster; each transfer task gives away ``nbytes``, in equal parts."""

    def __init__(self, kernel: Kernel, network: Network, places: Places, nbytes: float) -> None:
        self._kernel, self._network, self._places, self._nbytes = kernel, network, places, nbytes
        self._ways: dict[tuple[str, str], Channel] = {}
        self._under_way: Counter[str] = Counter()  # shards, by shuffle
        self._waiting: defaultdict[str, list[Go]] = defaultdict(list)

    def ended(self, key: Any, source: str) -> None:
        """A task is over: if it was a transfer, its shards leave now, but for those that stay."""
        transfer = self._places(key, source) if self._nbytes else None
        if transfer is not None:
            shuffle, places = transfer
            for target, count in Counter(places).items():
                if target != source:
                    self._send(shuffle, source, target, int(self._nbytes * count / len(places)))

    def when_due(self, key: Any, begin: Go) -> None:
        """Call ``begin`` when a task may compute: at once, or, for a barrier, when its shards are there."""
        shuffle = barred(key)
        if shuffle is not None and self._under_way[shuffle]:
            self._waiting[shuffle].append(begin)
        else:
            begin()

    def _send(self, shuffle: str, source: str, target: str, nbytes: int) -> None:
        if (source, target) not in self._ways:
            self._ways[source, target] = Channel(self._network, source, target)
        self._under_way[shuffle] += 1
        arrived = partial(self._arrived, shuffle)
        self._ways[source, target].send(self._kernel.now, nbytes, arrived)

    def _arrived(self, shuffle: str) -> None:
        self._under_way[shuffle] -= 1
        if not self._under_way[shuffle]:
            for begin in self._waiting.pop(shuffle, ()):
                begin()


def barred(key: Any) -> str | None:
    """The shuffle that a barrier is of; of any other task's key, none."""
    shuffle = str(key).removeprefix(f"{BARRIER}-")
    return shuffle if shuffle != str(key) else None


def placed(scheduler: Any, key: Any, worker: str) -> tuple[str, list[str]] | None:
    """A transfer task's shuffle, and the worker of each partition that comes out of it, by address.

    The first transfer starts the shuffle in the scheduler's plugin, which places its partitions. In Dask a
    partition's task is then sent anywhere, says where it belongs, and is sent again; here it is told at once.
    """
    plugin = scheduler.extensions["shuffle"]
    barrier = next((task for task in scheduler.tasks[key].dependents if barred(task.key)), None)
    if barrier is None:
        return None
    shuffle = str(barred(barrier.key))
    begun = shuffle in plugin.active_shuffles
    plugin.get_or_create(shuffle, key, worker)
    workers: dict[Any, str] = plugin.active_shuffles[shuffle].run_spec.worker_for
    for task in () if begun else barrier.dependents:
        _, *index = task.key
        partition = index[0] if len(index) == 1 else tuple(index)
        if partition in workers:
            plugin._set_restriction(task, workers[partition])
    return shuffle, list(workers.values())
