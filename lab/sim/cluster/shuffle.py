"""Dask's peer-to-peer shuffles: what tasks send to each other themselves, and the barrier that waits for it.

As ``distributed.shuffle`` does it: a transfer task cuts its piece into shards, one for each partition that
comes out, and is done; they are sent behind its back, to the workers that Dask's own plugin has chosen. The
barrier task is done when all of them are there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from lab.sim.kernel import Kernel
from lab.sim.network import Channel, Network

BARRIER = "shuffle-barrier"

Go = Callable[[], None]
Places = Callable[[Any, str], Iterable[str]]  # a task's key and machine to where its shards belong


class Shuffle:
    """All shards of a cluster; each transfer task gives away ``nbytes``, in equal parts."""

    def __init__(self, kernel: Kernel, network: Network, places: Places, nbytes: float) -> None:
        self._kernel, self._network, self._places, self._nbytes = kernel, network, places, nbytes
        self._ways: dict[tuple[str, str], Channel] = {}
        self._under_way = 0
        self._waiting: list[Go] = []

    def ended(self, key: Any, source: str) -> None:
        """A task is over: if it was a transfer, its shards leave now, but for those that stay."""
        if self._nbytes:
            shards = Counter(self._places(key, source))
            for target, count in shards.items():
                if target != source:
                    self._send(source, target, int(self._nbytes * count / shards.total()))

    def when_due(self, prefix: str, begin: Go) -> None:
        """Call ``begin`` when a task may compute: at once, or, for a barrier, when all shards are there."""
        if prefix == BARRIER and self._under_way:
            self._waiting.append(begin)
        else:
            begin()

    def _send(self, source: str, target: str, nbytes: int) -> None:
        if (source, target) not in self._ways:
            self._ways[source, target] = Channel(self._network, source, target)
        self._under_way += 1
        self._ways[source, target].send(self._kernel.now, nbytes, self._arrived)

    def _arrived(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            waiting, self._waiting = self._waiting, []
            for begin in waiting:
                begin()


def placed(scheduler: Any, key: Any, worker: str) -> Iterable[str]:
    """The worker of each partition that comes out of a transfer task's shuffle, by address; none of another.

    The first transfer starts the shuffle in the scheduler's plugin, which places its partitions. In Dask a
    partition's task is then sent anywhere, says where it belongs, and is sent again; here it is told at once.
    """
    from distributed.shuffle._core import id_from_key

    plugin = scheduler.extensions["shuffle"]
    barrier = next((task for task in scheduler.tasks[key].dependents if id_from_key(task.key)), None)
    if barrier is None:
        return ()
    shuffle = id_from_key(barrier.key)
    begun = shuffle in plugin.active_shuffles
    plugin.get_or_create(shuffle, key, worker)
    workers: dict[Any, str] = plugin.active_shuffles[shuffle].run_spec.worker_for
    for task in () if begun else barrier.dependents:
        _, *index = task.key
        partition = index[0] if len(index) == 1 else tuple(index)
        if partition in workers:
            plugin._set_restriction(task, workers[partition])
    return workers.values()
