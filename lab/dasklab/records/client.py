"""What the client does meanwhile: the graphs that it sends, and the calls in which it waits for the cluster.

Methods of one client are wrapped, in this process only; ``detach`` restores them.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial, wraps
from time import process_time
from typing import Any

from distributed import Client, Future
from distributed.metrics import time
from tornado.ioloop import IOLoop, PeriodicCallback

from dasklab.records.recorder.base import TICK_MS, guarded
from dasklab.records.recorder.layout import CLIENT
from dasklab.records.recorder.life import Life, RecorderEvent
from dasklab.records.recorder.loops import watch_loop
from dasklab.records.recorder.patches import replace
from dasklab.records.recorder.privacy import Privacy
from dasklab.records.recorder.process import CPU, NAN, MachineCpu, ThreadCpu, machine, resident_bytes
from dasklab.records.recorder.stacks import InterpreterUse, WatchedProcess, watch_stacks
from dasklab.records.recorder.store import Store
from dasklab.records.user_lines import CodeLine, LineRecorder, UserProgram, line_of

MAX_LOG_ROWS = 50_000
SAMPLE_MS = 100  # between two samples of its use of CPUs, since code between two calls may be short
SIZES_TIMEOUT_S = 5.0
# Calls that move data or wait; a synchronous client makes all of them through ``sync``.
AWAITED = {"_gather": "wait", "_gather_remote": "gather", "_scatter": "scatter"}
NEEDS_RESULTS = {"_gather", "_result", "_exception", "_traceback", "_wait"}  # of Dask, with futures


class ClientRecorder:
    """Records the calls and graphs of one client."""

    def __init__(self, client: Client, privacy: Privacy, hold: bool = False) -> None:
        """Prepare to record.

        Args:
            hold: ask the scheduler nothing until ``finish``.
        """
        self.client, self.hold = client, hold
        self.store = Store(CLIENT, MAX_LOG_ROWS, privacy=privacy)
        self.life = Life()
        self.program = UserProgram()
        self.undo: list[Callable[[], Any]] = []
        self.asking: list[asyncio.Future[None]] = []  # for sizes of what was scattered
        self.scattered: list[tuple[float, float, list[Any]]] = []  # start, stop, keys; sizes still unknown
        self.begin = 0.0  # of the graph that is being built
        self.cpu_s = 0.0  # of this process, when it was recorded last

    def attach(self, lines: bool = True) -> None:
        """Begin to record, in the client's event loop.

        Args:
            lines: record which lines of the user's program run.
        """
        self.loop_thread = threading.get_native_id()
        self.cpu_s = process_time()
        self._replace("_graph_to_futures", self._building)
        self._replace("_send_to_scheduler", self._sending)
        self._replace("sync", self._synchronous)
        for name, kind in AWAITED.items():
            self._replace(name, partial(self._awaited, kind))
        self.undo.append(watch_loop(self.client.loop, self.store.logs["busy"]))
        self.interpreter = InterpreterUse()
        self.machine = MachineCpu()
        watched = WatchedProcess(self.store, self.client.loop, interpreter=self.interpreter)
        self.undo.append(watch_stacks(watched))
        if lines:
            self.undo.append(LineRecorder(self.program, self.store).stop)
        self.undo.append(self._sample_cpu)
        interval_ms = TICK_MS if self.hold else SAMPLE_MS
        sampling, loop = PeriodicCallback(self._sample_cpu, interval_ms), IOLoop.current()
        sampling.start()
        self.undo.append(partial(loop.add_callback, sampling.stop))
        self._sample_cpu()
        self.life.move(RecorderEvent.ATTACH)

    def detach(self) -> None:
        self.life.move(RecorderEvent.DETACH)
        while self.undo:
            self.undo.pop()()

    def _replace(self, name: str, wrap: Callable[[Any], Any]) -> None:
        original = getattr(self.client, name, None)
        if original is not None:
            wrapper = wrap(original)

            @wraps(original)
            def recorded(*args: Any, **options: Any) -> Any:
                # once detached, it may still be called by others
                return (wrapper if self.life.is_recording else original)(*args, **options)

            self.undo.append(replace(self.client, name, recorded))

    def _building(self, build: Callable[..., Any]) -> Callable[..., Any]:
        def building(*args: Any, **options: Any) -> Any:
            self.begin = time()
            return build(*args, **options)

        return building

    def _sending(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def sending(message: dict[str, Any]) -> Any:
            if message.get("op") == "update-graph":
                self._add_graph(message)
            return send(message)

        return sending

    @guarded
    def _add_graph(self, message: Mapping[str, Any]) -> None:
        packed = getattr(message.get("expr_ser"), "frames", message.get("graph_frames", ()))
        nbytes = float(sum(memoryview(frame).nbytes for frame in packed))
        row = (self.begin, time(), nbytes, len(message.get("keys", ())), *self.line())
        self.store.logs["graphs"].add(*row)

    def _synchronous(self, sync: Callable[..., Any]) -> Callable[..., Any]:
        def synchronous(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
            start, line = time(), self._guarded_line() or CodeLine()
            missing = self._missing(function, args)
            try:
                return sync(function, *args, **options)
            finally:
                self._add_call("sync", start, line, missing)

        return synchronous

    def _awaited(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def awaited(*args: Any, **options: Any) -> Any:
            start, missing = time(), self._missing(call, args)
            scattered: list[Any] = []
            try:
                result = await call(*args, **options)
                if kind == "scatter":
                    scattered = self._keys(result) or []
                return result
            finally:
                if scattered:
                    self.scattered.append((start, time(), scattered))
                    if not self.hold:
                        self._ask()
                else:
                    self._add_call(kind, start, CodeLine(), missing)

        return awaited

    def _add_call(self, kind: str, start: float, line: CodeLine, missing: float | None) -> None:
        results = NAN if missing is None else missing
        self.store.logs["calls"].add(kind, start, time(), 0, 0.0, *line, results)

    @guarded
    def _missing(self, function: Callable[..., Any], args: tuple[Any, ...]) -> float | None:
        """Return how many of the results are not there that a call needs; None if it needs none."""
        if getattr(function, "__name__", "") not in NEEDS_RESULTS:
            return None
        objects = [getattr(function, "__self__", None), *args]
        return float(sum(future.status in ("pending", "lost") for future in futures_in(objects)))

    @guarded
    def _keys(self, result: Any) -> list[Any]:
        """Return the keys of what ``Client.scatter`` returns: a future, or several."""
        futures = result.values() if isinstance(result, dict) else result
        return [future.key for future in ([futures] if isinstance(futures, Future) else futures)]

    def _ask(self) -> None:
        self.asking += [asyncio.ensure_future(self._add_scatter(*scatter)) for scatter in self.scattered]
        self.scattered.clear()

    async def _add_scatter(self, start: float, stop: float, keys: list[Any]) -> None:
        """Ask the scheduler for the sizes: measuring them here might call the user's code."""
        nbytes = NAN
        try:
            scheduler: Any = self.client.scheduler
            sizes = await asyncio.wait_for(scheduler.nbytes(keys=keys, summary=False), SIZES_TIMEOUT_S)
            nbytes = float(sum(sizes.values()))
        except Exception:  # noqa: BLE001 - a result may be gone, the cluster, too: the size stays unknown
            self.store.failures["scatter: unknown size"] += 1
        self.store.logs["calls"].add("scatter", start, stop, len(keys), nbytes, *CodeLine(), NAN)

    async def finish(self) -> None:
        """Record this process's CPU time and machine, and wait for the sizes of what was scattered."""
        self._add_cpu()
        self._ask()
        await asyncio.gather(*self.asking)
        self.asking.clear()

    @guarded
    def _add_cpu(self) -> None:
        before, self.cpu_s = self.cpu_s, process_time()
        self.store.logs["metrics"].add(CPU, self.cpu_s - before)
        name, cpus = machine()
        self.store.logs["about"].add("machine", name)
        self.store.logs["about"].add("cpus", str(cpus))

    @guarded
    def _sample_cpu(self) -> None:
        """Record how long the user's program and the event loop waited for a CPU, and no other threads."""
        own, loop = (ThreadCpu.of(thread) for thread in (self.program.native_thread, self.loop_thread))
        if self.program.native_thread == self.loop_thread:
            loop = ThreadCpu(0.0, 0.0, 0)
        row = (
            time(),
            process_time(),
            own.waited_s + loop.waited_s,
            loop.waited_s,
            resident_bytes(),
            loop.ran_s,
            self.interpreter.held_s,
            self.machine.seconds(),
        )
        self.store.logs["cpu"].add(*row)

    @guarded
    def _guarded_line(self) -> CodeLine:
        return self.line()

    def line(self) -> CodeLine:
        """Return the line of the user's code that runs here, or else in the user's program.

        Libraries send graphs from threads of their own, in which no code of the user's runs.
        """
        return line_of(sys._getframe(1)) or self.program.line()


def futures_in(value: Any) -> Iterator[Future[Any]]:
    """Yield the futures in nested lists, tuples, sets and values of dictionaries."""
    values = [value]
    while values:
        value = values.pop()
        if isinstance(value, Future):
            yield value
        elif isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            values += value
