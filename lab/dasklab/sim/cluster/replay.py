"""Execute a client's program with Dask's own client: the real graphs, keys and dependencies, no user code."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dask._task_spec import Task, TaskRef

from dasklab.sim.cluster.placeholder import Placeholder
from dasklab.sim.program import ClientStep, Program, SentGraph, parse_key

if TYPE_CHECKING:
    from dasklab.sim.cluster.cluster import SimCluster


class ProgramReplay:
    """A program on a simulated cluster. It has the form of a workload's job: ``run`` does the timed work."""

    tasks: int | None = None

    def __init__(self, cluster: SimCluster, program: Program) -> None:
        self._cluster, self._client, self._program = cluster, cluster.client, program
        self._keys = [parse_key(text) for text in program.keys]
        self._futures: dict[int, Any] = {}  # what the client holds, by position of the key
        self._graph_of: dict[Any, int] = {}  # of each key whose result the client does not have yet
        self._missing: dict[int, int] = {}  # results that a wait still lacks, by graph
        self._arrived = [0] * len(program.graphs)
        self._total = 0
        self._preparations: deque[tuple[float, float]] = deque()
        self._watch_results()
        self._take_time_for_graphs()
        if program.prepared:
            self._prepare(program.prepared)

    def run(self, _: int) -> float:
        """Execute all steps of the program."""
        for step in self._program.steps:
            getattr(self, f"_{step.does}")(step)
        return 0.0

    def _watch_results(self) -> None:
        """Count the results that the scheduler reports to the client."""
        handlers = self._client._stream_handlers
        handle = handlers["key-in-memory"]

        def count(key: Any = None, **message: Any) -> Any:
            handled = handle(key=key, **message)
            graph = self._graph_of.pop(key, None)
            if graph is not None:
                self._total += 1
                self._arrived[graph] += 1
                if self._missing.get(graph, 0) == 1:
                    del self._missing[graph]
                elif graph in self._missing:
                    self._missing[graph] -= 1
            return handled

        handlers["key-in-memory"] = count

    def _take_time_for_graphs(self) -> None:
        """Let the scheduler take as long for each graph as it was recorded to."""
        scheduler, loop = self._cluster.scheduler, self._cluster.loops["scheduler"]
        update_graph = scheduler.stream_handlers["update-graph"]

        async def update(**message: Any) -> None:
            thread_s, loop_s = self._preparations.popleft()
            if thread_s:
                await asyncio.sleep(thread_s)
            loop.charge(loop_s)
            await update_graph(**message)

        scheduler.stream_handlers["update-graph"] = update

    def _prepare(self, keys: Iterable[int]) -> None:
        """Put data on the workers: as tasks that take no time."""
        self._preparations.append((0.0, 0.0))
        self._futures |= self._submit(keys, keys)
        for future in self._futures.values():
            self._client.sync(future._state.wait)

    def _submit(self, tasks: Iterable[int], wanted_keys: Iterable[int]) -> dict[int, Any]:
        """Send a graph: its tasks, and all that they need and that the client does not hold any more."""
        needs, keys = self._program.needs, self._keys
        graph: dict[Any, Task] = {}
        stack = list(tasks)
        while stack:
            position = stack.pop()
            if keys[position] not in graph:
                graph[keys[position]] = Task(
                    keys[position], _nothing, *(TaskRef(keys[need]) for need in needs[position])
                )
                stack += [need for need in needs[position] if need not in self._futures]
        positions = list(wanted_keys)
        futures = self._client.get(graph, [keys[position] for position in positions], sync=False)
        return dict(zip(positions, futures, strict=True))

    def _pause(self, step: ClientStep) -> None:
        self._cluster.kernel.sleep(step.seconds)

    def _send(self, step: ClientStep) -> None:
        graph: SentGraph = self._program.graphs[step.graph]
        self._preparations.append((graph.thread_s, graph.loop_s))
        self._graph_of |= {self._keys[key]: step.graph for key in graph.wanted_keys}
        self._futures |= self._submit(graph.tasks, graph.wanted_keys)

    def _wait(self, step: ClientStep) -> None:
        lacking = ((graph, count - self._arrived[graph]) for graph, count in step.results)
        self._missing = {graph: count for graph, count in lacking if count > 0}
        self._cluster.kernel.wait_for(lambda: not self._missing and self._total >= step.total)

    def _gather(self, step: ClientStep) -> None:
        self._client.gather([self._futures[key] for key in step.keys if key in self._futures])

    def _release(self, step: ClientStep) -> None:
        for key in step.keys:
            if future := self._futures.pop(key, None):
                future.release()

    def _scatter(self, step: ClientStep) -> None:
        data = {self._keys[key]: Placeholder(self._program.works[key][0][2]) for key in step.keys}
        futures = self._client.scatter(data)
        self._futures |= {key: futures[self._keys[key]] for key in step.keys}


def _nothing(*_: Any) -> None:
    """Stand for the user's function; it is never called."""
