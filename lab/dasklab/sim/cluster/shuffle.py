"""Dask's peer-to-peer shuffles: what tasks send to each other themselves, and the barrier that waits for it.

As ``distributed.shuffle`` does it: a transfer task cuts its piece into shards, one for each partition that
comes out, and is done; they are sent behind its back, to the workers that Dask's own plugin has chosen. What
is for one worker goes together, a few messages at a time, each of which is answered. The barrier task is done
when all of them are there and their senders know.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dask
from dask.utils import parse_bytes

from dasklab.sim.cluster.comm import ANSWER_BYTES, Process, World
from dasklab.sim.network import Channel

BARRIER = "shuffle-barrier"  # the prefix of such a task
NO_OPERATION = ()  # about a task: a message, no more. What shards' bytes cost is in the calibrated operations
CONCURRENCY, MESSAGE_BYTES = "distributed.p2p.comm.concurrency", "distributed.p2p.comm.message-bytes-limit"
DEFAULTS = {CONCURRENCY: 10, MESSAGE_BYTES: "2 MiB"}  # of versions that had no setting for it

Go = Callable[[], None]
# A task's key and machine to the shuffle that it is a transfer of and where its shards belong.
Places = Callable[[Any, str], tuple[str, Collection[str]] | None]


@dataclass(eq=False)
class Buffer:
    """What a worker has to give away in a shuffle: by receiver the bytes, and the messages under way."""

    shuffle: str
    source: Process
    shards: dict[str, int] = field(default_factory=dict)
    under_way: Counter[str] = field(default_factory=Counter)


class Shuffle:
    """All shards of a cluster; each transfer task gives away ``nbytes``, in equal parts."""

    def __init__(self, world: World, places: Places, nbytes: float) -> None:
        self._world, self._places, self._nbytes = world, places, nbytes
        # By shuffle and source, those with something in them or under way: what has none of them is over.
        self._buffers: defaultdict[str, dict[str, Buffer]] = defaultdict(dict)
        self._waiting: defaultdict[str, list[Go]] = defaultdict(list)
        asked = {name: dask.config.get(name, default) for name, default in DEFAULTS.items()}
        self._at_once, self._most = asked[CONCURRENCY], parse_bytes(asked[MESSAGE_BYTES])

    def ended(self, key: Any, source: str) -> None:
        """A task is over: if it was a transfer, its shards leave now, but for those that stay."""
        transfer = self._places(key, source) if self._nbytes else None
        if transfer is not None:
            shuffle, places = transfer
            counts = Counter(place for place in places if place != source)
            if counts:
                self._give(self._buffer(shuffle, source), counts, self._nbytes / len(places))

    def when_due(self, key: Any, begin: Go) -> None:
        """Call ``begin`` when a task may compute: at once, or, for a barrier, when its shards are there."""
        shuffle = barred(key)
        if shuffle is not None and self._buffers[shuffle]:
            self._waiting[shuffle].append(begin)
        else:
            begin()

    def kill(self, machine: str) -> None:
        """A worker's process is gone, and what it had not given away; nobody waits for its answers."""
        for buffer in [buffer for held in self._buffers.values() for buffer in held.values()]:
            if buffer.source.name == machine:
                self._over(buffer)
            elif buffer.under_way.pop(machine, 0):
                buffer.source.loop.call_soon(self._send, buffer)

    def _buffer(self, shuffle: str, source: str) -> Buffer:
        held = self._buffers[shuffle]
        if source not in held:
            held[source] = Buffer(shuffle, self._world.processes_by_name[source])
        return held[source]

    def _give(self, buffer: Buffer, counts: Counter[str], nbytes: float) -> None:
        """Dask sends the most first. Shards are not of one size, as here: who comes first is chance."""
        receivers = list(counts)
        self._world.kernel.random.shuffle(receivers)
        for receiver in receivers:
            buffer.shards[receiver] = buffer.shards.get(receiver, 0) + int(counts[receiver] * nbytes)
        buffer.source.loop.call_soon(self._send, buffer)

    # --- in the source's process, in the receiver's, and in the source's again ------------------------------

    def _send(self, buffer: Buffer) -> None:
        """As much as may be under way; the buffer's end is that nothing is."""
        while buffer.shards and buffer.under_way.total() < self._at_once:
            receiver = next(iter(buffer.shards))
            left = buffer.shards[receiver]
            if left > self._most:
                buffer.shards[receiver] = left - self._most
            else:
                del buffer.shards[receiver]
            buffer.under_way[receiver] += 1
            there = self._world.processes_by_name[receiver]
            arrived = partial(self._arrived, buffer, there)
            self._post(buffer.source, there, min(left, self._most), arrived)
        if not buffer.under_way and self._buffers[buffer.shuffle].get(buffer.source.name) is buffer:
            self._over(buffer)

    def _arrived(self, buffer: Buffer, there: Process) -> None:
        """Of a process that is gone its kernel answers at once."""

        def received() -> None:
            self._world.charge(there, NO_OPERATION, 0)
            self._post(there, buffer.source, ANSWER_BYTES, answered)

        def answered() -> None:
            buffer.source.loop.call_soon(self._answered, buffer, there.name)

        if there.loop.is_closed():
            answered()
        else:
            there.loop.call_soon(received)

    def _answered(self, buffer: Buffer, receiver: str) -> None:
        self._world.charge(buffer.source, NO_OPERATION, 0)
        if receiver in buffer.under_way:  # else it has died meanwhile
            buffer.under_way -= Counter([receiver])
            self._send(buffer)

    def _post(self, here: Process, there: Process, nbytes: int, arrived: Go) -> None:
        """Over a connection of its own, as requests have that are under way at once."""
        begun = self._world.charge(here, NO_OPERATION, 0)
        channel = Channel(self._world.network, here.name, there.name)
        channel.send(begun, nbytes, arrived, here.pace)

    def _over(self, buffer: Buffer) -> None:
        held = self._buffers[buffer.shuffle]
        del held[buffer.source.name]
        if not held:
            for begin in self._waiting.pop(buffer.shuffle, ()):
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
