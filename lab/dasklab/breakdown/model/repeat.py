"""One repeat on one clock, as columns: tasks, what they needed, fetches, and when processes were busy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property

import numpy as np
import pandas as pd

from dasklab.breakdown.model.arrays import (
    NONE,
    Codes,
    Floats,
    Mask,
    distinct,
    last_before,
    pairs,
    running_max,
)
from dasklab.breakdown.model.evidence import Evidence
from dasklab.breakdown.model.interval_sets import IntervalSets
from dasklab.breakdown.model.intervals import Places
from dasklab.breakdown.model.step_function import ZERO, StepFunction

CLIENT, SCHEDULER = "client", "scheduler"
CLIENT_CODE, SCHEDULER_CODE, FIRST_WORKER = 0, 1, 2
COUNTER_S, COUNTER_SHARE = 0.02, 0.02  # of each CPU: by so much counters of CPU time may be wrong
INSIDE_TASKS = "Client-worker-"
"""Ids of clients of tasks begin so: what they send belongs to whatever sent the task."""
PEER_TO_PEER = re.compile(r"(shuffle|rechunk)-(transfer|p2p|barrier)|p2p")
"""In the name of a task: a step of a shuffle whose tasks exchange their data themselves."""


class Extent(Enum):
    """What a repeat lasted for."""

    COMPUTATION = auto()
    """One timed call of the client."""

    BLOCK = auto()
    """A block of the user's program, from entering it to leaving it."""

    WATCHED = auto()
    """The computations of programs that were not recorded: what they did besides is unknown."""


@dataclass(frozen=True)
class Tasks:
    """The computed tasks, in order of their start. A task that was computed twice has two rows.

    Attributes:
        key: codes of ``Repeat.keys``.
        worker: codes of nodes.
        thread: the thread's number on its worker.
        stamps: by name (``stages.STAMPS`` and ``DUE_STAMPS``), seconds; NaN where nobody took it.
        freed: when they gave their threads back: at their ends, or when they seceded.
        has_result: whether each made a result: it did not fail, end with its worker or the repeat, nor was it
            cancelled or rescheduled.
        trigger: row of the task whose end made the scheduler choose this one; ``NONE`` for another reason.
        disk_s: seconds that Dask reported for reading and writing spilled data.
        nbytes: sizes of their results, as Dask estimates them.
    """

    key: Codes
    worker: Codes
    thread: Codes
    stamps: Mapping[str, Floats]
    freed: Floats
    has_result: Mask
    trigger: Codes
    disk_s: Floats
    nbytes: Floats

    def __len__(self) -> int:
        return len(self.key)

    @property
    def start(self) -> Floats:
        return self.stamps["start"]

    @property
    def stop(self) -> Floats:
        return self.stamps["stop"]

    @cached_property
    def handled(self) -> Floats:
        """When the scheduler had handled the end of each task, at the earliest its end."""
        return np.fmax(self.stop, self.stamps["handled"])

    @cached_property
    def handled_order(self) -> Codes:
        """The rows in the order in which the scheduler handled the ends of the tasks."""
        return np.argsort(self.handled, kind="stable")

    @cached_property
    def assigned(self) -> Floats:
        """When the scheduler assigned each task to its worker, at the latest its start."""
        return np.fmin(self.start, self.stamps["decided"])


@dataclass(frozen=True)
class Needs:
    """What tasks need of others: ``task`` is the row of the dependent, ``key`` the code of the dependency.

    ``holders`` are the workers that had the data when the task was sent, in one text.
    """

    task: Codes
    key: Codes
    nbytes: Floats
    holders: Sequence[str]


@dataclass(frozen=True)
class Fetches:
    """Requests of workers for data. ``first_byte`` and ``last_byte``: when packets showed the data."""

    receiver: Codes
    sender: Codes
    start: Floats
    stop: Floats
    busy: Mask  # the sender answered that it was busy
    serve_start: Floats
    serialise_s: Floats
    deserialise_s: Floats
    first_byte: Floats
    last_byte: Floats

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Shards:
    """Messages with which workers sent each other shards of peer-to-peer shuffles, in no order."""

    start: Floats
    stop: Floats
    nbytes: Floats


NO_SHARDS = Shards(*[np.zeros(0)] * 3)


@dataclass(frozen=True)
class Delivered:
    """Which fetch was for which key: one row per pair."""

    fetch: Codes
    key: Codes


@dataclass(frozen=True)
class Graph:
    """A graph: when the client began and sent it and the scheduler received it; then seconds of work.

    Attributes:
        client: id of the client that sent it; empty if unknown.
        is_recorded: whether that client was recorded. Else ``start`` and ``sent`` are ``received``.
    """

    start: float
    sent: float
    received: float
    tasks: int
    nbytes: int
    materialise: float
    order: float
    state: float
    client: str = ""
    is_recorded: bool = True


@dataclass(frozen=True)
class Calls:
    """Calls of the client in which it waits for the cluster.

    Attributes:
        kind: sync, wait, gather or scatter.
        missing: how many of the results that it needs were not there when it began; NaN if unknown.
    """

    kind: Sequence[str]
    start: Floats
    stop: Floats
    missing: Floats

    def of_kind(self, *kinds: str) -> tuple[Floats, Floats]:
        own = self._is_kind(kinds)
        return self.start[own], self.stop[own]

    def missing_of(self, *kinds: str) -> Floats:
        """Return ``missing`` of the same calls as ``of_kind``."""
        return self.missing[self._is_kind(kinds)]

    def _is_kind(self, kinds: Sequence[str]) -> Mask:
        return np.asarray(np.isin(np.array(self.kind, object), kinds), bool)


@dataclass(frozen=True)
class Lines:
    """Which line of the user's program ran, and when; a row per stretch of time.

    Attributes:
        waits: whether the program waited for the cluster there.
        local: whether Dask computed there without the cluster, with the scheduler of threads or processes.
        builds: whether the program had called Dask there and did not wait: Dask built a graph.
        code: position of the line in ``names``.
        names: file, number and text of each line.
    """

    start: Floats
    stop: Floats
    waits: Mask
    local: Mask
    builds: Mask
    code: Codes
    names: Sequence[tuple[str, int, str]]


NO_MASK = np.zeros(0, bool)
NO_LINES = Lines(np.zeros(0), np.zeros(0), NO_MASK, NO_MASK, NO_MASK, np.zeros(0, np.int64), ())
NO_CALLS = Calls((), np.zeros(0), np.zeros(0), np.zeros(0))


def _are_codes(codes: Codes, stop: int, start: int = 0) -> bool:
    return bool(((codes >= start) & (codes < stop)).all())


@dataclass(frozen=True)
class Repeat:
    """One timed computation, or one recorded block, on the scheduler's or the capture's clock.

    All times are seconds since 1970. Rows are referred to by position: task 7 is row 7 of every column of
    ``tasks``. ``NONE`` stands for no row. ``validate`` checks what is written here.
    """

    number: int
    """Its number in the trial, from 0, warm-ups counted; 0 of a record."""

    start: float
    """When the user's computation began. Stamps of a task that overlaps may lie before it."""

    stop: float
    """When it had ended; not before ``start``."""

    threads: Mapping[str, int]
    """Number of threads of each worker. Workers are in the order of their codes, from FIRST_WORKER on."""

    keys: Sequence[str]
    """All task keys, each once, in no order. Codes of keys are positions in this list."""

    tasks: Tasks
    """One row per computation, sorted by start; all overlap the repeat. A key computed twice has two rows."""

    needs: Needs
    """Pairs of a task and a key that it depended on, in no order."""

    fetches: Fetches
    """Requests for data between processes of this repeat, in no order."""

    delivered: Delivered
    """Pairs of a fetch and a key, in the order of the fetches."""

    busy: IntervalSets
    """When the event loop of each process was busy."""

    shards: Shards = NO_SHARDS
    """What shuffles sent from one worker to another; none in records of earlier versions."""

    unfinished: StepFunction = ZERO
    """Number of tasks that the scheduler knew and that were not done, over time. Sorted by time."""

    queued: StepFunction = ZERO
    """Number of these that the scheduler kept back because no worker should get more. Sorted by time."""

    warmup: bool = False
    """Whether it is an untimed one, which leaves the statistics."""

    graphs: Sequence[Graph] = field(default=())
    """In the order of their arrival at the scheduler."""

    calls: Calls = NO_CALLS
    """Calls in which the client waited for the cluster; none where nobody recorded them."""

    lines: Lines = NO_LINES
    """Which line of the user's program ran, sampled; none where nobody recorded them."""

    evidence: Evidence = field(default_factory=Evidence)
    """What is known besides: CPU, locks, garbage collection, lost results."""

    prefixes: Sequence[str] = ()
    """For each key, by position, what is computed: its name without its number or token."""

    joined: Mapping[str, float] = field(default_factory=dict)
    """When each worker joined the cluster; without those that were there from the start."""

    extent: Extent = Extent.COMPUTATION
    """What it lasted for."""

    senders: Sequence[str] = ()
    """For each key, by position, the id of the client whose graph introduced it; empty where unknown."""

    left: Mapping[str, float] = field(default_factory=dict)
    """When each worker left the cluster; without those that stayed."""

    client: str = ""
    """Id of the recorded client; empty of a trial, and where no program was recorded."""

    unfinished_of: Mapping[str, StepFunction] = field(default_factory=dict)
    """``unfinished`` by the id of the client that sent the tasks; under an empty id those of unknown ones."""

    on_loopback: bool = False
    """Whether the workers listen where only their own machine reaches them: then what they and the scheduler
    send to each other crosses no network. A client may still be behind a link, through a tunnel."""

    def validate(self) -> None:
        """Check what the attributes promise.

        Raises:
            ValueError: one of them does not hold; it is named.
        """
        tasks, keys, nodes = self.tasks, len(self.keys), len(self.places.nodes)
        promises = {
            "stop is not before start": self.start <= self.stop,
            "keys are unique": len(set(self.keys)) == keys == len(self.prefixes) == len(self.senders),
            "tasks are sorted by start": bool((np.diff(tasks.start) >= 0).all()),
            "tasks overlap the repeat": bool(((tasks.start < self.stop) & (tasks.stop > self.start)).all()),
            "tasks have a key and a worker": _are_codes(tasks.key, keys)
            and _are_codes(tasks.worker, nodes, FIRST_WORKER),
            "triggers are rows or NONE": _are_codes(tasks.trigger, len(tasks), NONE),
            "needs have a task and a key": _are_codes(self.needs.task, len(tasks))
            and _are_codes(self.needs.key, keys),
            "fetches have two processes": _are_codes(self.fetches.receiver, nodes)
            and _are_codes(self.fetches.sender, nodes),
            "delivered keys have a fetch": _are_codes(self.delivered.fetch, len(self.fetches))
            and _are_codes(self.delivered.key, keys),
            "graphs are sorted by arrival": [graph.received for graph in self.graphs]
            == sorted(graph.received for graph in self.graphs),
            "numbers over time are sorted": all(
                bool((np.diff(steps.time) >= 0).all()) for steps in (self.unfinished, self.queued)
            ),
        }
        if broken := [promise for promise, holds in promises.items() if not holds]:
            raise ValueError(f"repeat {self.number}: {broken[0]}, but not here")

    @property
    def makespan(self) -> float:
        return self.stop - self.start

    @cached_property
    def places(self) -> Places:
        return Places((CLIENT, SCHEDULER, *self.threads))

    @property
    def workers(self) -> range:
        """The codes of the workers, in the order of ``threads``."""
        return range(FIRST_WORKER, FIRST_WORKER + len(self.threads))

    def node(self, name: str) -> int:
        return self.places.nodes.index(name)

    def blocked(self, node: int, least_s: float) -> IntervalSets:
        """When the event loop of a process was busy for at least so long at a time."""
        busy = self.busy
        long = (busy.member == node) & (busy.stop - busy.start >= least_s)
        return IntervalSets(busy.member[long], busy.start[long], busy.stop[long])

    @cached_property
    def converting(self) -> IntervalSets:
        """When each worker serialised data that it sent, or deserialised data that it received."""
        fetches = self.fetches
        return IntervalSets(
            np.concatenate([fetches.sender, fetches.receiver]),
            np.concatenate([fetches.serve_start, fetches.stop - fetches.deserialise_s]),
            np.concatenate([fetches.serve_start + fetches.serialise_s, fetches.stop]),
        )

    def busy_s(self, name: str) -> float:
        """How long the event loop of a process was busy during the repeat."""
        node = np.array([self.node(name)])
        return float(self.busy.within(node, np.array([self.start]), np.array([self.stop]))[0])

    @cached_property
    def prefix(self) -> Codes:
        """The kind of each task, as a number."""
        codes, _ = pd.factorize(np.array(self.prefixes, dtype=object))
        return codes.astype(np.int64)[self.tasks.key]

    @cached_property
    def is_shuffle(self) -> Mask:
        """Which tasks are steps of a peer-to-peer shuffle or rechunk; the last row stands for no task."""
        of_prefix = {prefix: bool(PEER_TO_PEER.search(prefix)) for prefix in set(self.prefixes)}
        of_key = np.array([of_prefix[prefix] for prefix in self.prefixes], bool)
        return np.append(of_key[self.tasks.key] if len(self.tasks) else np.zeros(0, bool), False)

    @cached_property
    def repeated(self) -> Codes:
        """Rows of tasks that made a result which an earlier graph had made, and which had not been lost.

        Within one graph Dask computes a key again for reasons of its own: it lost the result, or sent the
        task elsewhere. So another graph must have arrived after the first result was there.
        """
        tasks = self.tasks
        rows = np.flatnonzero(tasks.has_result)
        key, handled = tasks.key[rows], tasks.handled[rows]
        earlier = last_before(key, handled, key, tasks.assigned[rows])
        rows, since = rows[earlier != NONE], handled[earlier[earlier != NONE]]
        received = np.sort([graph.received for graph in self.graphs])
        arrived = np.searchsorted(received, [since, tasks.assigned[rows]], side="right")
        return np.setdiff1d(rows[arrived[0] < arrived[1]], self.evidence.again)

    @cached_property
    def task_clients(self) -> tuple[Codes, list[str]]:
        """For each task the position of the client that sent it, and the ids of all clients."""
        codes, clients = pd.factorize(np.array(self.senders, dtype=object))
        return codes.astype(np.int64)[self.tasks.key], [str(client) for client in clients]

    @cached_property
    def is_users(self) -> Mask:
        """For each task whether it may be of the recorded client; all of them where none was recorded."""
        if self.extent is Extent.WATCHED:
            return np.ones(len(self.tasks), bool)
        client, clients = self.task_clients
        return np.array([*(not name or self.is_own(name) for name in clients), True])[client]

    def is_own(self, client: str) -> bool:
        """Whether a client is the recorded one, or one of its tasks."""
        return client in self.recorded_clients or client.startswith(INSIDE_TASKS)

    @cached_property
    def recorded_clients(self) -> set[str]:
        """The ids of the clients whose program was recorded."""
        return {graph.client for graph in self.graphs if graph.is_recorded} | {self.client} - {""}

    @cached_property
    def foreign_keys(self) -> set[str]:
        """The keys of other clients than the recorded one; none where no program was recorded."""
        if self.extent is Extent.WATCHED or not self.recorded_clients:
            return set()
        senders = zip(self.keys, self.senders, strict=True)
        return {key for key, client in senders if client and not self.is_own(client)}

    @cached_property
    def waited_s(self) -> Floats:
        """For each task how long it waited for a primitive of Dask, or for tasks of its own."""
        rows = np.arange(len(self.tasks))
        sets = (self.evidence.locks, self.evidence.nested)
        waits = (some.within(rows, self.tasks.start, self.tasks.stop) for some in sets)
        return sum(waits, np.zeros(len(rows)))

    @property
    def left_behind(self) -> int:
        """Number of the recorded client's tasks that were not done at the end; of all where it is unknown."""
        own = [number for client, number in self.unfinished_of.items() if self.is_own(client)]
        own = own if any(self.unfinished_of) else [self.unfinished]
        return sum(int(number.at(np.array([self.stop]))[0]) for number in own)

    @cached_property
    def sizes(self) -> Floats:
        """For each key the size of its result in bytes, as Dask estimates it; 0 where no task needed it."""
        sizes = np.zeros(len(self.keys))
        sizes[self.needs.key] = self.needs.nbytes
        return sizes

    @cached_property
    def moved(self) -> Floats:
        """Bytes that each fetch brought, in Dask's estimate of sizes."""
        total = np.bincount(self.delivered.fetch, self.sizes[self.delivered.key], minlength=len(self.fetches))
        return np.where(self.fetches.busy, 0.0, total)

    @property
    def sent_bytes(self) -> float:
        """Bytes that workers sent to each other, on request or in shuffles, as Dask estimates them."""
        return float(self.moved.sum() + self.shards.nbytes.sum())

    def cpu_of_machine(self, node: int) -> tuple[float, float]:
        """Return the CPU time of all programs of a process's machine, and what of it this cluster had.

        A machine counts once, however many processes and containers it runs. NaN where it is unknown, or
        cannot be: more than all its CPUs can give, or less than the cluster's own processes had.
        """
        cpu, ends = self.evidence.cpu, (np.array([self.start]), np.array([self.stop]))
        use = cpu.get(node)
        if use is None or not use.machine:
            return np.nan, np.nan
        own = [other.between(*ends)[0][0] for other in cpu.values() if other.machine == use.machine]
        used_s, own_s = float(use.machine_between(*ends)[0]), float(np.sum(own))
        most_s = use.cpus * self.makespan
        grace_s = use.cpus * (COUNTER_S + COUNTER_SHARE * self.makespan)
        can_be = own_s - grace_s <= used_s <= most_s + grace_s
        return (min(used_s, most_s), min(own_s, used_s, most_s)) if can_be else (np.nan, np.nan)

    @cached_property
    def fetched(self) -> list[list[int]]:
        """For each fetch the codes of the keys that it was for."""
        keys: list[list[int]] = [[] for _ in range(len(self.fetches))]
        for fetch, key in zip(self.delivered.fetch.tolist(), self.delivered.key.tolist(), strict=True):
            keys[fetch].append(key)
        return keys

    @cached_property
    def load(self) -> dict[int, StepFunction]:
        """For each worker how many tasks it has been assigned that have not ended, nor seceded."""
        tasks = self.tasks
        return {
            worker: StepFunction.from_increments(
                np.concatenate([tasks.assigned[own], tasks.freed[own]]), np.repeat([1, -1], len(own))
            )
            for worker in self.workers
            for own in [np.flatnonzero(tasks.worker == worker)]
        }

    @cached_property
    def thread_rows(self) -> tuple[Codes, list[tuple[str, int]]]:
        """For each task the index of its thread, and all threads: worker and number.

        Threads that ran nothing have negative numbers.
        """
        tasks = self.tasks
        pairs = np.column_stack([tasks.worker, tasks.thread])
        used, index = np.unique(pairs, axis=0, return_inverse=True)
        threads = [(self.places.nodes[worker], thread) for worker, thread in used.tolist()]
        for name, count in self.threads.items():
            idle = count - sum(worker == name for worker, _ in threads)
            threads += [(name, -number - 1) for number in range(idle)]
        order = sorted(range(len(threads)), key=threads.__getitem__)
        rank = np.empty(len(threads), np.int64)
        rank[order] = np.arange(len(threads))
        return rank[index.reshape(-1)], sorted(threads)

    @cached_property
    def previous_on_thread(self) -> Codes:
        """For each task the row of the one that its thread ran before it; ``NONE`` for the first."""
        thread, _ = self.thread_rows
        order = np.lexsort((self.tasks.start, thread))
        previous = np.full(len(order), NONE)
        follows = thread[order[1:]] == thread[order[:-1]]
        previous[order[1:]] = np.where(follows, order[:-1], NONE)
        return previous

    @cached_property
    def need_fetch(self) -> Codes:
        """For each need the fetch that brought it in time for the task; ``NONE`` where the data was there.

        Of those that began before the task did it is the one that ended last.
        """
        tasks, fetches = self.tasks, self.fetches
        answered = ~fetches.busy[self.delivered.fetch]
        fetch, key = self.delivered.fetch[answered], self.delivered.key[answered]
        owner = fetches.receiver[fetch] * len(self.keys) + key
        order = np.lexsort((fetches.start[fetch], owner))
        fetch, owner = fetch[order], owner[order]
        latest = running_max(owner, fetches.stop[fetch])
        at_latest = np.where(fetches.stop[fetch] == latest, np.arange(len(fetch)), 0)
        best = fetch[np.maximum.accumulate(at_latest)] if len(fetch) else fetch
        request = tasks.worker[self.needs.task] * len(self.keys) + self.needs.key
        position = last_before(owner, fetches.start[fetch], request, tasks.start[self.needs.task])
        return np.where(position >= 0, best[position], NONE) if len(best) else np.full(len(request), NONE)

    @cached_property
    def task_fetches(self) -> tuple[Codes, Codes]:
        """Pairs of a task and a fetch of its worker that brought some of its data, each once; by task."""
        needs, delivered, fetches = self.needs, self.delivered, self.fetches
        request = self.tasks.worker[needs.task] * len(self.keys) + needs.key
        owner = fetches.receiver[delivered.fetch] * len(self.keys) + delivered.key
        need, index = pairs(owner, request)
        count = max(1, len(fetches))
        task, fetch = np.divmod(distinct(needs.task[need] * count + delivered.fetch[index]), count)
        return task, fetch

    @cached_property
    def need_source(self) -> Codes:
        """For each need the task that computed it: the last one that began before the dependent did."""
        tasks = self.tasks
        return last_before(
            tasks.key, tasks.start, self.needs.key, np.nextafter(tasks.start[self.needs.task], 0)
        )
