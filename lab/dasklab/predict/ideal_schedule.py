"""What a client's program takes on ideal machines: a list scheduler without a network.

Each task begins as soon as what it needs is there and a thread is free; results and decisions take no time.
Of tasks that could begin, the one begins first that was sent first, and of one graph the one that began first
in the record. The client pauses as recorded, and the scheduler prepares each graph as long as recorded. A
simulation takes longer by what the network and the scheduler cost.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean

from dask.utils import key_split

from dasklab.sim.program import ClientStep, Program

CLIENT = "the client's own code"
GRAPHS = "the preparation of graphs"


@dataclass(frozen=True)
class IdealSchedule:
    """How a program goes on ideal machines.

    Attributes:
        task_s: of all computations.
        client_s: how long no task was unfinished: the client kept all threads waiting.
        path_s: seconds of the critical path by prefix of tasks, ``CLIENT`` and ``GRAPHS``.
    """

    seconds: float
    task_s: float
    client_s: float
    path_s: dict[str, float]


@dataclass
class _Stretch:
    """Something that takes time: a task, a pause, the preparation of a graph.

    Attributes:
        cause: the stretch whose end made it begin; None at the beginning of the program.
        missing: how many stretches have to end before it may begin.
    """

    name: str
    seconds: float
    graph: int | None = None
    cause: _Stretch | None = None
    has_ended: bool = False
    missing: int = 0
    dependents: list[tuple[int, _Stretch]] = field(default_factory=list)


def schedule(program: Program, threads: int | None = None, *, is_level: bool = False) -> IdealSchedule:
    """Schedule a program on so many threads.

    Args:
        threads: of all workers together. None: as many as there are tasks.
        is_level: whether all tasks of a prefix take as long as they do in the mean.
    """
    return _IdealCluster(program, threads, is_level).run()


class _IdealCluster:
    """Executes one program."""

    def __init__(self, program: Program, threads: int | None, is_level: bool) -> None:
        self._program = program
        computations = sum(map(len, program.works))
        self._free = computations if threads is None else threads
        self._prefixes = [str(key_split(key)) for key in program.keys]
        self._mean_s = _mean_seconds(program, self._prefixes) if is_level else {}
        self._now = self._task_s = self._client_s = 0.0
        self._began = self._unfinished = 0
        self._latest: dict[int, _Stretch] = dict.fromkeys(program.prepared, _Stretch("", 0, has_ended=True))
        self._computed = [0] * len(program.keys)
        self._arrived = [0] * len(program.graphs)
        self._ready: list[tuple[int, _Stretch]] = []  # a heap, in order of priority
        self._under_way: list[tuple[float, int, _Stretch]] = []  # a heap, by end
        self._last: _Stretch | None = None  # whose end the client waited for last

    def run(self) -> IdealSchedule:
        steps: dict[str, Callable[[ClientStep], None]] = {
            "pause": self._pause,
            "send": self._send,
            "wait": self._wait,
            "gather": self._gather,
            "scatter": self._scatter,
            "release": lambda _: None,
        }
        for step in self._program.steps:
            steps[step.does](step)
        path_s: defaultdict[str, float] = defaultdict(float)
        stretch = self._last
        while stretch:
            path_s[stretch.name] += stretch.seconds
            stretch = stretch.cause
        return IdealSchedule(self._now, self._task_s, self._client_s, dict(path_s))

    # --- the client's steps ---------------------------------------------------------------------------------

    def _pause(self, step: ClientStep) -> None:
        pause = _Stretch(CLIENT, step.seconds)
        self._begin(pause, self._last)
        self._run_until(lambda: pause.has_ended)
        self._last = pause  # whatever else ended in the same moment

    def _send(self, step: ClientStep) -> None:
        graph = self._program.graphs[step.graph]
        preparation = _Stretch(GRAPHS, graph.thread_s + graph.loop_s)
        self._begin(preparation, self._last)
        tasks: dict[int, _Stretch] = {}
        for key in self._to_compute(graph.tasks):
            tasks[key] = self._task(key)
        self._latest |= tasks
        self._unfinished += len(tasks)
        for key in graph.wanted_keys:
            if key in tasks:
                tasks[key].graph = step.graph
        for key, task in tasks.items():
            needs = [preparation, *(self._latest[need] for need in self._program.needs[key])]
            task.missing = sum(not need.has_ended for need in needs)
            for need in needs:
                need.dependents.append((step.graph * len(self._computed) + key, task))

    def _wait(self, step: ClientStep) -> None:
        self._run_until(
            lambda: (
                all(self._arrived[graph] >= count for graph, count in step.results)
                and sum(self._arrived) >= step.total
            )
        )

    def _gather(self, step: ClientStep) -> None:
        results = [self._latest[key] for key in step.keys if key in self._latest]
        self._run_until(lambda: all(result.has_ended for result in results))

    def _scatter(self, step: ClientStep) -> None:
        self._latest |= dict.fromkeys(step.keys, _Stretch("", 0, has_ended=True))

    # --- tasks ----------------------------------------------------------------------------------------------

    def _to_compute(self, keys: Iterable[int]) -> list[int]:
        """Return the keys of a graph that were computed for it, and what they need that nobody has."""
        stack = [key for key in keys if self._computed[key] < len(self._program.works[key])]
        needed: dict[int, None] = {}
        while stack:
            key = stack.pop()
            if key not in needed:
                needed[key] = None
                stack += [need for need in self._program.needs[key] if need not in self._latest]
        return list(needed)

    def _task(self, key: int) -> _Stretch:
        works, prefix = self._program.works[key], self._prefixes[key]
        cpu_s, wait_s, _ = works[min(self._computed[key], len(works) - 1)]
        self._computed[key] += 1
        task = _Stretch(prefix, self._mean_s.get(prefix, cpu_s + wait_s))
        self._task_s += task.seconds
        return task

    def _begin(self, stretch: _Stretch, cause: _Stretch | None) -> None:
        stretch.cause = cause
        self._began += 1
        heapq.heappush(self._under_way, (self._now + stretch.seconds, self._began, stretch))

    def _run_until(self, is_done: Callable[[], bool]) -> None:
        """Let tasks begin and end until the client goes on, or nothing is left to end."""
        while not is_done() and self._under_way:
            self._last = self._end_next()

    def _end_next(self) -> _Stretch:
        time, _, first = heapq.heappop(self._under_way)
        if not self._unfinished:
            self._client_s += time - self._now
        self._now, first.has_ended = time, True
        if first.name not in (CLIENT, GRAPHS):
            self._free += 1
            self._unfinished -= 1
            if first.graph is not None:
                self._arrived[first.graph] += 1
        for priority, task in first.dependents:
            task.missing -= 1
            if not task.missing:
                heapq.heappush(self._ready, (priority, task))
        while self._ready and self._free:
            _, task = heapq.heappop(self._ready)
            self._free -= 1
            self._begin(task, first)
        return first


def _mean_seconds(program: Program, prefixes: list[str]) -> dict[str, float]:
    """Return the mean seconds of a computation by prefix."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for prefix, works in zip(prefixes, program.works, strict=True):
        seconds[prefix] += [cpu_s + wait_s for cpu_s, wait_s, _ in works]
    return {prefix: fmean(own) for prefix, own in seconds.items()}
