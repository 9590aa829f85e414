"""Dask's peer-to-peer shuffles: what tasks send to each other directly, and the barrier that waits for it.

Theory of operation
-------------------
As in ``distributed.shuffle``, a transfer task cuts its piece into shards, one for each output partition, and
is done. The shards are sent in the background, to the workers that Dask's own plugin has chosen:

    transfer task ends          shards go into the worker's buffer, by receiver
    buffer, in the background   sends up to MESSAGE_BYTES of one receiver's shards at a time, and keeps up to
                                CONCURRENCY messages unanswered
    receiver                    answers each message
    barrier task                starts when no buffer of its shuffle has shards or unanswered messages left

Dask sends the receiver with the most bytes first. Its shards differ in size; ours are equal, so the order is
left to the dice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dask
from dask.utils import parse_bytes
from distributed.shuffle._core import P2PBarrierTask

from dasklab.sim.cluster.comm import ANSWER_BYTES, Fabric, SimProcess
from dasklab.sim.network import Channel
from dasklab.sim.program import BARRIER

# A message without operations about tasks: what shards' bytes cost is part of the calibrated operations.
NO_OPERATION = ()
CONCURRENCY, MESSAGE_BYTES = "distributed.p2p.comm.concurrency", "distributed.p2p.comm.message-bytes-limit"
DEFAULTS = {CONCURRENCY: 10, MESSAGE_BYTES: "2 MiB"}  # of versions of Dask without these settings

Callback = Callable[[], None]
# (task's key, its machine) -> the shuffle's id and the machine of each output partition; None for other tasks
Placement = Callable[[Any, str], tuple[str, Collection[str]] | None]


@dataclass(eq=False)
class Buffer:
    """The shards that one worker has to send in one shuffle.

    Attributes:
        shards: bytes to send, by receiver.
        unanswered: number of messages under way, by receiver.
    """

    shuffle: str
    source: SimProcess
    shards: dict[str, int] = field(default_factory=dict)
    unanswered: Counter[str] = field(default_factory=Counter)


class Shuffle:
    """All shuffles of a cluster. Each transfer task gives away ``nbytes``, in equal shards.

    Attributes:
        sent_bytes: bytes of shards that each running machine has sent to others.
    """

    def __init__(self, fabric: Fabric, placement: Placement, nbytes: float) -> None:
        self._fabric, self._placement, self._nbytes = fabric, placement, nbytes
        # By shuffle and source. An empty buffer without unanswered messages is removed.
        self._buffers: defaultdict[str, dict[str, Buffer]] = defaultdict(dict)
        self._barriers: defaultdict[str, list[Callback]] = defaultdict(list)
        self.sent_bytes: Counter[str] = Counter()
        settings = {name: dask.config.get(name, default) for name, default in DEFAULTS.items()}
        self._concurrency, self._message_bytes = settings[CONCURRENCY], parse_bytes(settings[MESSAGE_BYTES])

    def task_ended(self, key: Any, source: str) -> None:
        """Send the shards of a task that ended, if it was a transfer. Shards for its own worker stay."""
        placement = self._placement(key, source) if self._nbytes else None
        if placement is not None:
            shuffle, machines = placement
            counts = Counter(machine for machine in machines if machine != source)
            if counts:
                self._fill(self._buffer(shuffle, source), counts, self._nbytes / len(machines))

    def when_ready(self, key: Any, begin: Callback) -> None:
        """Call ``begin`` when a task may compute: at once, or for a barrier when its shards have arrived."""
        shuffle = barrier_of(key)
        if shuffle is not None and self._buffers[shuffle]:
            self._barriers[shuffle].append(begin)
        else:
            begin()

    def kill(self, machine: str) -> None:
        """Forget what a killed worker had sent and had not, and the answers that it will not send."""
        del self.sent_bytes[machine]
        for buffer in [buffer for buffers in self._buffers.values() for buffer in buffers.values()]:
            if buffer.source.name == machine:
                self._remove(buffer)
            elif buffer.unanswered.pop(machine, 0):
                buffer.source.loop.call_soon(self._send, buffer)

    def _buffer(self, shuffle: str, source: str) -> Buffer:
        buffers = self._buffers[shuffle]
        if source not in buffers:
            buffers[source] = Buffer(shuffle, self._fabric.processes_by_name[source])
        return buffers[source]

    def _fill(self, buffer: Buffer, counts: Counter[str], shard_bytes: float) -> None:
        """Add shards to a buffer: ``counts`` of them by receiver."""
        receivers = list(counts)
        self._fabric.kernel.random.shuffle(receivers)
        for receiver in receivers:
            buffer.shards[receiver] = buffer.shards.get(receiver, 0) + int(counts[receiver] * shard_bytes)
        buffer.source.loop.call_soon(self._send, buffer)

    def _send(self, buffer: Buffer) -> None:
        """In the source's process: send as much as may be under way; remove a buffer that is done."""
        while buffer.shards and buffer.unanswered.total() < self._concurrency:
            receiver = next(iter(buffer.shards))
            remaining = buffer.shards[receiver]
            if remaining > self._message_bytes:
                buffer.shards[receiver] = remaining - self._message_bytes
            else:
                del buffer.shards[receiver]
            buffer.unanswered[receiver] += 1
            target = self._fabric.processes_by_name[receiver]
            on_arrival = partial(self._arrived, buffer, target)
            nbytes = min(remaining, self._message_bytes)
            self.sent_bytes[buffer.source.name] += nbytes
            self._post(buffer.source, target, nbytes, on_arrival)
        if not buffer.unanswered and self._buffers[buffer.shuffle].get(buffer.source.name) is buffer:
            self._remove(buffer)

    def _arrived(self, buffer: Buffer, target: SimProcess) -> None:
        """On the receiver's machine. If the process is gone, its kernel answers at once."""

        def received() -> None:
            self._fabric.charge(target, NO_OPERATION, 0)
            self._post(target, buffer.source, ANSWER_BYTES, answered)

        def answered() -> None:
            buffer.source.loop.call_soon(self._answered, buffer, target.name)

        if target.loop.is_closed():
            answered()
        else:
            target.loop.call_soon(received)

    def _answered(self, buffer: Buffer, receiver: str) -> None:
        """In the source's process again."""
        self._fabric.charge(buffer.source, NO_OPERATION, 0)
        if receiver in buffer.unanswered:  # otherwise the receiver has died meanwhile
            buffer.unanswered -= Counter([receiver])
            self._send(buffer)

    def _post(self, source: SimProcess, target: SimProcess, nbytes: int, on_arrival: Callback) -> None:
        """Send a message over a connection of its own, as Dask does for concurrent requests."""
        starts_at = self._fabric.charge(source, NO_OPERATION, 0)
        channel = Channel(self._fabric.network, source.name, target.name)
        channel.send(starts_at, nbytes, on_arrival, source.pace)

    def _remove(self, buffer: Buffer) -> None:
        """Remove a buffer; if it was the last one of its shuffle, start the barrier."""
        buffers = self._buffers[buffer.shuffle]
        del buffers[buffer.source.name]
        if not buffers:
            for begin in self._barriers.pop(buffer.shuffle, ()):
                begin()


def barrier_of(key: Any) -> str | None:
    """Return the id of the shuffle that a task is the barrier of; None for other tasks."""
    shuffle = str(key).removeprefix(f"{BARRIER}-")
    return shuffle if shuffle != str(key) else None


def place(scheduler: Any, key: Any, worker: str) -> tuple[str, list[str]] | None:
    """Return a transfer task's shuffle and the worker's address of each output partition.

    The first transfer of a shuffle starts it in the scheduler's plugin, which places the partitions. In Dask
    the task of a partition is then sent to any worker, reports where it belongs, and is sent again. Here it
    is sent to the right worker at once.

    Args:
        scheduler: Dask's.
        key: the transfer task's key.
        worker: address of the worker that runs it.
    """
    plugin = scheduler.extensions["shuffle"]
    barrier = next((task for task in scheduler.tasks[key].dependents if barrier_of(task.key)), None)
    if barrier is None:
        return None
    shuffle = str(barrier_of(barrier.key))
    if not isinstance(barrier.run_spec, P2PBarrierTask):
        return shuffle, _place_recorded(scheduler, plugin, barrier)
    is_new = shuffle not in plugin.active_shuffles
    plugin.get_or_create(shuffle, key, worker)
    workers: dict[Any, str] = plugin.active_shuffles[shuffle].run_spec.worker_for
    for task in barrier.dependents if is_new else ():
        _, *index = task.key
        partition = index[0] if len(index) == 1 else tuple(index)
        if partition in workers:
            plugin._set_restriction(task, workers[partition])
    return shuffle, list(workers.values())


def _place_recorded(scheduler: Any, plugin: Any, barrier: Any) -> list[str]:
    """Place the partitions of a recorded shuffle in equal ranges, as Dask's plugin does.

    A record does not hold Dask's description of the shuffle, which the plugin needs.
    """
    workers = sorted(scheduler.workers)
    partitions = sorted(barrier.dependents, key=lambda task: str(task.key))
    placed = [workers[len(workers) * number // len(partitions)] for number in range(len(partitions))]
    for task, worker in zip(partitions, placed, strict=True):
        if task.state == "waiting" and not task.worker_restrictions:
            plugin._set_restriction(task, worker)
    return placed
