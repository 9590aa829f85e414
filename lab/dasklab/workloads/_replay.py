"""Replay the program of a recorded client with placeholder tasks, for workloads that `dasklab twin` writes.

A program is what ``dasklab.sim.program.Program`` describes, as JSON: keys (tuples are lists), what each
needs, what each of its computations does (CPU seconds, seconds of waiting, bytes of the result), and the
client's steps. Each step is carried out with Dask's own client. What the record says of the scheduler's time
for graphs is left out: the scheduler takes its own.

All waits are coroutines of the client's event loop, so a replay can be simulated like any other workload.
"""

# mypy: disable-error-code="import-not-found,no-untyped-call,import-untyped"
from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import _placeholder
from _graph import ref, task
from _harness import Job
from _placeholder import placeholder
from dask.sizeof import sizeof
from distributed import Client

MAX_PROGRAM_BYTES = 1 << 28  # a million tasks have some 100 MB


def unpack(text: str) -> dict[str, Any]:
    """Return the program that a workload's source holds as base64 of zlib of JSON.

    Raises:
        ValueError: it is too large to be one.
    """
    inflating = zlib.decompressobj()
    content = inflating.decompress(base64.b64decode(text), MAX_PROGRAM_BYTES)
    if inflating.unconsumed_tail:
        raise ValueError(f"the program has more than {MAX_PROGRAM_BYTES:,} bytes")
    program: dict[str, Any] = json.loads(content)
    return program


def replay(client: Client, text: str) -> Job:
    """Return the job that replays a program. Its answer is how many gathered results have a wrong size."""
    client.upload_file(_placeholder.__file__)  # else each task would carry the code of its function
    return Job(_Player(client, unpack(text)).run, expected=0)


def key_of(content: Any) -> Any:
    """Return a key from JSON, which knows no tuples."""
    return tuple(map(key_of, content)) if isinstance(content, list) else content


class _Player:
    """Carries out the steps of a program. Keys and graphs are referred to by position."""

    def __init__(self, client: Client, program: dict[str, Any]) -> None:
        self._client, self._program = client, program
        self._keys = [key_of(content) for content in program["keys"]]
        self._works: list[deque[Any]] = []
        self._sizes: dict[int, int] = {}  # of the results that were sent for last
        self._futures: dict[int, Any] = {}  # what the client holds
        self._graph_of: dict[Any, int] = {}  # of each key whose result the client does not have yet
        self._arrived: dict[int, int] = {}  # results, by graph
        self._changed = asyncio.Event()
        self._watch_results()
        self._begin()
        self._prepared = self._submit(program["prepared"], program["prepared"])
        self._begin()
        client.sync(self._until_computed, list(self._prepared.values()))

    def run(self, _: int) -> float:
        """Carry out all steps, then release what the client still holds."""
        self._begin()
        for step in self._program["steps"]:
            getattr(self, f"_{step['does']}")(step)
        self._release({"keys": [*self._futures]})
        return float(self._wrong)

    def _begin(self) -> None:
        self._works = [deque(works) for works in self._program["works"]]
        self._wrong = 0  # results
        self._graph_of.clear()
        self._arrived = dict.fromkeys(range(len(self._program["graphs"])), 0)

    def _watch_results(self) -> None:
        """Count the results that the scheduler reports to the client."""
        handlers = self._client._stream_handlers
        handle: Any = handlers["key-in-memory"]

        def count(key: Any = None, **message: Any) -> Any:
            handled = handle(key=key, **message)
            graph = self._graph_of.pop(key, None)
            if graph is not None:
                self._arrived[graph] += 1
                self._changed.set()
            return handled

        handlers["key-in-memory"] = count

    def _submit(self, tasks: Iterable[int], wanted_keys: Sequence[int]) -> dict[int, Any]:
        """Send a graph: its tasks, and all that they need and that the client does not hold any more."""
        graph: dict[Any, Any] = {}
        stack = list(tasks)
        while stack:
            position = stack.pop()
            key = self._keys[position]
            if key not in graph:
                works, needs = self._works[position], self._program["needs"][position]
                work = works.popleft() if len(works) > 1 else works[0]
                self._sizes[position] = work[2]
                graph[key] = task(key, placeholder, *work, *(ref(self._keys[need]) for need in needs))
                stack += [need for need in needs if need not in self._futures]
        if not graph:
            return {}
        futures = self._client.get(graph, [self._keys[position] for position in wanted_keys], sync=False)
        return dict(zip(wanted_keys, futures, strict=True))

    def _send(self, step: dict[str, Any]) -> None:
        graph = self._program["graphs"][step["graph"]]
        self._graph_of.update({self._keys[key]: step["graph"] for key in graph["wanted_keys"]})
        self._futures |= self._submit(graph["tasks"], graph["wanted_keys"])

    def _pause(self, step: dict[str, Any]) -> None:
        self._client.sync(asyncio.sleep, step["seconds"])

    def _wait(self, step: dict[str, Any]) -> None:
        self._client.sync(self._until_arrived, step["results"], step["total"])

    async def _until_arrived(self, results: list[tuple[int, int]], total: int) -> None:
        while any(self._arrived[graph] < count for graph, count in results) or (
            sum(self._arrived.values()) < total
        ):
            self._changed.clear()
            await self._changed.wait()

    async def _until_computed(self, futures: list[Any]) -> None:
        await asyncio.gather(*(future._state.wait() for future in futures))

    def _gather(self, step: dict[str, Any]) -> None:
        keys = [key for key in step["keys"] if key in self._futures]
        results = self._client.gather([self._futures[key] for key in keys])
        self._wrong += sum(
            sizeof(result) != self._sizes[key] for key, result in zip(keys, results, strict=True)
        )

    def _release(self, step: dict[str, Any]) -> None:
        for key in step["keys"]:
            if future := self._futures.pop(key, None):
                future.release()

    def _scatter(self, step: dict[str, Any]) -> None:
        self._sizes |= {key: self._program["works"][key][0][2] for key in step["keys"]}
        data = {self._keys[key]: bytes(self._sizes[key]) for key in step["keys"]}
        futures = self._client.scatter(data)
        self._futures |= {key: futures[self._keys[key]] for key in step["keys"]}
