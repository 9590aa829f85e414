"""One run as the account needs it: tasks, fetches and busy spells, all on one clock."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from dasklab.breakdown.busy import Spells

SCHEDULER, CLIENT = "scheduler", "client"


@dataclass(slots=True)
class Task:
    """A computed task; stages that were not seen are those before or after them."""

    key: str
    worker: str
    thread: int
    start: float
    stop: float
    executing: float | None = None
    ready: float | None = None
    arrived: float | None = None
    sent: float | None = None
    due: float | None = None
    decided: float | None = None
    done: float | None = None
    report_due: float | None = None
    reported: float | None = None
    handled: float | None = None
    trigger: str = ""
    stimulus: str = ""
    disk: float = 0.0
    needs: tuple[Need, ...] = ()

    @property
    def given(self) -> float:
        """When the scheduler gave it to its worker."""
        return self.start if self.decided is None else min(self.decided, self.start)

    @property
    def prefix(self) -> str:
        """What is done, without which one: Dask's key without its number or token."""
        from dask.utils import key_split

        return str(key_split(self.key))


@dataclass(frozen=True, slots=True)
class Need:
    """What a task needs of another: its size, and who had it when the task was sent."""

    key: str
    nbytes: float
    holders: tuple[str, ...]


@dataclass(slots=True)
class Fetch:
    """A request for data and its answer; ``first`` and ``last``: when packets showed the data on the wire."""

    receiver: str
    sender: str
    start: float
    stop: float
    keys: tuple[str, ...]
    busy: bool = False
    serve_start: float | None = None
    serialise: float = 0.0
    deserialise: float = 0.0
    first: float | None = None
    last: float | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph on its way: when Dask's client was given it and sent it, the scheduler had it; then seconds."""

    begin: float
    sent: float
    received: float
    tasks: int
    nbytes: int
    materialise: float
    order: float
    state: float


@dataclass
class Run:
    """A run on one clock. ``unfinished`` and ``queued``: how many tasks the scheduler had, from when on."""

    number: int
    start: float
    stop: float
    threads: dict[str, int]
    tasks: list[Task]
    fetches: list[Fetch] = field(default_factory=list)
    busy: dict[str, Spells] = field(default_factory=dict)
    unfinished: list[tuple[float, int]] = field(default_factory=list)
    queued: list[tuple[float, int]] = field(default_factory=list)
    warmup: bool = False
    graphs: list[Graph] = field(default_factory=list)

    @property
    def makespan(self) -> float:
        """Its length."""
        return self.stop - self.start

    @cached_property
    def by_key(self) -> dict[str, Task]:
        """Tasks by key; of one that was computed twice the last."""
        return {task.key: task for task in self.tasks}

    @cached_property
    def by_thread(self) -> dict[tuple[str, int], list[Task]]:
        """The tasks of each thread in their order; threads that did nothing have numbers below zero."""
        found: dict[tuple[str, int], list[Task]] = {}
        for task in sorted(self.tasks, key=lambda task: task.start):
            found.setdefault((task.worker, task.thread), []).append(task)
        for worker, threads in self.threads.items():
            used = sum(name == worker for name, _ in found)
            found.update({(worker, -index - 1): [] for index in range(threads - used)})
        return dict(sorted(found.items()))

    @cached_property
    def before_on_thread(self) -> dict[str, Task]:
        """For each task's key the one that its thread ran before it."""
        return {later.key: task for some in self.by_thread.values() for task, later in pairwise(some)}

    @cached_property
    def _fetches_of(self) -> dict[str, tuple[list[Fetch], list[float], float]]:
        """Each receiver's fetches by their start, these, and how long the longest took."""
        found = defaultdict(list)
        for fetch in sorted(self.fetches, key=lambda fetch: fetch.start):
            found[fetch.receiver].append(fetch)
        return {
            name: (some, [fetch.start for fetch in some], max(fetch.stop - fetch.start for fetch in some))
            for name, some in found.items()
        }

    def fetches_between(self, receiver: str, start: float, stop: float) -> list[Fetch]:
        """A receiver's fetches that were under way between two times."""
        some, starts, longest = self._fetches_of.get(receiver, ([], [], 0.0))
        near = some[bisect_left(starts, start - longest) : bisect_left(starts, stop)]
        return [fetch for fetch in near if fetch.stop > start]

    @cached_property
    def fetches_by_key(self) -> dict[tuple[str, str], list[Fetch]]:
        """A receiver's fetches that brought a key."""
        found = defaultdict(list)
        for fetch in self.fetches:
            for key in fetch.keys:
                found[fetch.receiver, key].append(fetch)
        return found

    def see(self, transfers: Iterable[tuple[str, str, float, float, float]]) -> None:
        """Take over from packets when data was on the wire: sender, receiver, request, first, last byte."""
        asked: defaultdict[tuple[str, str], list[Fetch]] = defaultdict(list)
        for fetch in sorted(self.fetches, key=lambda fetch: fetch.start):
            asked[fetch.sender, fetch.receiver].append(fetch)
        for sender, receiver, request, first, last in sorted(transfers, key=lambda transfer: transfer[2]):
            pending = asked[sender, receiver]
            while pending and pending[0].stop < request:
                pending.pop(0)
            if pending and pending[0].start <= last:
                pending[0].first, pending[0].last = first, last
                pending.pop(0)
