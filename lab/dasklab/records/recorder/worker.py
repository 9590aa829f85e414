"""A worker's recorder: a row per task that it ran, what the task needed, and each transfer of data."""

# mypy: disable-error-code="no-untyped-call,attr-defined,misc"
from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial, wraps
from math import isnan
from typing import Any

import dask
import distributed
from dask.utils import parse_timedelta
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.metrics import context_meter, time
from distributed.profile import merge
from distributed.shuffle._comms import CommShardsBuffer

from dasklab.records.recorder.base import NAME, Recorder, describe, guarded
from dasklab.records.recorder.layout import KEY_SEPARATOR, WORKER
from dasklab.records.recorder.life import RecorderEvent, RecorderState
from dasklab.records.recorder.patches import Undo, replace, replace_item, share
from dasklab.records.recorder.process import NAN, ThreadCpu
from dasklab.records.recorder.stacks import WatchedProcess
from dasklab.records.recorder.store import CHUNK_ROWS
from dasklab.records.recorder.waits import watch_waits

CANCELLED_ATTEMPT, RESCHEDULED_ATTEMPT = "cancelled", "rescheduled"
"""Status of a task that was cancelled while it ran, so that its thread went on; and of one that gave itself
back, as those of a shuffle do whose data is elsewhere."""

MAX_ERROR_TEXT = 200  # characters
HAND_OVER_S = 2.0  # how long a worker that closes waits for the scheduler, for each chunk


class WorkerRecorder(Recorder, WorkerPlugin):
    """A worker's records: a row per task that it ran, what the task needed, and each transfer of data."""

    name = NAME
    tables = WORKER

    def setup(self, worker: Any) -> None:
        """Dask calls this when the plugin arrives at a worker, also at one that joins later.

        An exception would keep a worker that joins from starting, so the next visit reports it instead.
        """
        try:
            self.attach(worker)
        except Exception as error:  # noqa: BLE001
            self._undo_all()
            self.decline(worker, f"attach: {describe(error)}")
            self.life.move(RecorderEvent.FAIL)
        else:
            self.life.move(RecorderEvent.ATTACH)

    def decline(self, worker: Any, reason: str) -> None:
        """Answer the next visits with the reason for which this worker is not recorded."""

        async def answer(record: str, summary: bool = False) -> dict[str, Any]:
            return {"failures": {reason: 1}, "more": False}

        self.undo.append(replace_item(worker.handlers, "dasklab_take", answer))

    async def teardown(self, worker: Any) -> None:
        """Dask calls this when the plugin is removed; also when its worker closes, while others go on."""
        if self.life.state is RecorderState.ATTACHED and worker.status == Status.closing:
            self.life.move(RecorderEvent.CLOSE)
            await self.hand_over()
        self.detach()

    async def hand_over(self) -> None:
        """Give the scheduler what nobody has fetched yet, because the worker ends before the next visit."""
        try:
            self.summarise()
            more = True
            while more:
                reply = await self.take(self.owner.record)
                more = bool(reply and reply["more"])
                sending = self.server.scheduler.dasklab_receive(records=reply)
                await asyncio.wait_for(sending, HAND_OVER_S)
        except Exception as error:  # noqa: BLE001 - the scheduler may be gone, too; a worker must close all the same
            self.store.failures[f"hand_over: {describe(error)}"] += 1

    def attach(self, server: Any) -> None:
        super().attach(server)
        self.open: dict[Any, list[float]] = {}  # arrived, ready, executing, seceded
        self.ended: dict[Any, tuple[Any, ...]] = {}  # tasks whose end has not left yet
        self.had = {thread.ident: ThreadCpu.of(thread.native_id or 0) for thread in self.pool()}
        self.profiled = time()
        self._wrap_fetches()
        self._wrap_shuffles()
        self.undo.append(watch_waits(server.address, self.add_wait))
        self._wrap_handler("get_data", self.serve)
        self._wrap_handler("actor_execute", self.call_actor)
        if server.batched_stream is not None:
            self.stamp(server.batched_stream, self.note_reported)

    def watched(self) -> WatchedProcess:
        return super().watched()._replace(tasks=self.server.active_threads, pool=self.pool)

    def pool(self) -> list[threading.Thread]:
        """Return the threads that run tasks."""
        executors = self.server.executors.values()
        return [thread for executor in executors for thread in getattr(executor, "_threads", ())]

    def cpu_of_task(self, ident: int) -> ThreadCpu:
        """Return the CPU time of the task that just ended: what its thread used since the previous one."""
        native = next((thread.native_id for thread in self.pool() if thread.ident == ident), None)
        now = ThreadCpu() if native is None else ThreadCpu.of(native)
        before, self.had[ident] = self.had.get(ident, ThreadCpu(0.0, 0.0, 0)), now
        return now.since(before)

    @guarded
    def transition(self, key: Any, start: str, finish: str, **more: Any) -> None:
        now = time()
        if finish == "waiting" and start != "cancelled":
            self.open[key] = [now, NAN, NAN, NAN]
            self.add_needs(key)
        elif row := self.open.get(key):
            self.move(key, row, now, start, finish)

    def move(self, key: Any, row: list[float], now: float, start: str, finish: str) -> None:
        """Note the transition of a task that arrived before."""
        if finish in ("ready", "constrained"):
            row[1] = now
        elif finish == "executing":
            row[2] = now
        elif finish == "long-running":
            row[3] = now
        elif start in ("executing", "long-running") and finish in ("memory", "error"):
            self.add_task(key, row, now, finish)
            if finish == "error":
                self.add_error(key, now)
        elif start == "cancelled" and finish in ("memory", "error", "rescheduled"):
            self.add_abandoned(key, row, now, CANCELLED_ATTEMPT)
        elif finish == "rescheduled":
            self.add_abandoned(key, row, now, RESCHEDULED_ATTEMPT)
        elif start in ("executing", "long-running") and finish == "released":
            pass  # a thread cannot be stopped: it goes on until the cancelled task ends
        elif finish in ("released", "forgotten", "memory", "error"):
            del self.open[key]

    def add_needs(self, key: Any) -> None:
        text = str(key)
        for need in self.server.state.tasks[key].dependencies:
            nbytes = float(need.nbytes) if need.nbytes is not None else NAN
            self.store.logs["needs"].add(text, str(need.key), nbytes, ",".join(need.who_has))

    def add_task(self, key: Any, row: list[float], now: float, status: str) -> None:
        del self.open[key]
        task, ahead = self.server.state.tasks[key], self.server.scheduler_delay
        compute = [s for s in task.startstops if s["action"] == "compute"]
        begin, end = (compute[-1]["start"], compute[-1]["stop"]) if compute else (NAN, NAN)
        disk_s = sum(s["stop"] - s["start"] for s in task.startstops if s["action"].startswith("disk"))
        arrived, ready, executing, seceded = row
        begin, end = between(begin - ahead, end - ahead, executing, now)
        if status in (CANCELLED_ATTEMPT, RESCHEDULED_ATTEMPT):  # Dask has forgotten what it measured
            begin, end = executing, now
        stamps = (arrived, ready, executing, begin, end, seceded, now)
        thread = int(self.server.threads.get(key) or 0)
        outcome = (thread, disk_s, float(task.nbytes or 0), status, *self.cpu_of_task(thread))
        self.ended[key] = (str(key), stamps, outcome)
        if len(self.ended) > CHUNK_ROWS:
            self.add_ended(next(iter(self.ended)), NAN, NAN)

    def add_abandoned(self, key: Any, row: list[float], now: float, status: str) -> None:
        """Add a task whose end the worker does not report as such."""
        self.add_task(key, row, now, status)
        self.add_ended(key, NAN, NAN)

    def add_error(self, key: Any, now: float) -> None:
        """Record what an attempt raised, in the words that Dask made of it."""
        text = str(self.server.state.tasks[key].exception_text)[:MAX_ERROR_TEXT]
        name = text.partition("(")[0]
        self.store.logs["errors"].add(str(key), now, name if name.isidentifier() else "", text)

    def add_ended(self, key: Any, now: float, due: float) -> None:
        text, stamps, outcome = self.ended.pop(key)
        self.store.logs["tasks"].add(text, *stamps, due, now, *outcome)

    @guarded
    def add_wait(self, start: float, stop: float, key: Any, kind: str, owner: Any) -> None:
        name = str(getattr(owner, "name", ""))
        self.store.logs["waits"].add(start, stop, str(key), kind, name)

    def note_reported(self, message: dict[str, Any], now: float, due: float) -> None:
        if message.get("op") in ("task-finished", "task-erred") and message["key"] in self.ended:
            self.add_ended(message["key"], now, due or NAN)

    def sample(self, now: float) -> None:
        super().sample(now)
        self.store.logs["delays"].add(now, float(self.server.scheduler_delay))
        if self.server.batched_stream is not None:
            self.stamp(self.server.batched_stream, self.note_reported)

    def _wrap_fetches(self) -> None:
        """Stamp ``get_data_from_worker``, which workers of one process share: each call names its worker."""

        def install(fetchers: dict[Any, Any]) -> Undo:
            original = distributed.worker.get_data_from_worker

            async def fetch(*args: Any, who: str | None = None, **options: Any) -> Any:
                recorder, get = fetchers.get(who), partial(original, *args, who=who, **options)
                return await (recorder.fetch(get, *args, **options) if recorder else get())

            return replace(distributed.worker, "get_data_from_worker", fetch)

        self.undo.append(share("_dasklab_fetchers", self.server.address, self, install))

    def _wrap_shuffles(self) -> None:
        """Note each message of shards: Dask's own counters include those that a worker keeps."""

        def install(recorders: dict[Any, Any]) -> Undo:
            original = CommShardsBuffer.process

            async def process(buffer: Any, address: str, shards: Any, size: int) -> None:
                start, run = time(), getattr(buffer.send, "__self__", None)
                await original(buffer, address, shards, size)
                if recorder := recorders.get(getattr(run, "local_address", None)):
                    recorder.add_shards(start, address, size)

            return replace(CommShardsBuffer, "process", process)

        self.undo.append(share("_dasklab_shuffles", self.server.address, self, install))

    @guarded
    def add_shards(self, start: float, peer: str, nbytes: int) -> None:
        if peer != self.server.address:
            self.store.logs["shards"].add(start, time(), peer, float(nbytes))

    async def fetch(
        self, get: Callable[[], Awaitable[Any]], rpc: Any = None, keys: Iterable[Any] = (), worker: str = "",
        **options: Any,
    ) -> Any:  # fmt: skip
        start, spent = time(), [0.0]
        with context_meter.add_callback(partial(self.add_conversion, spent), allow_offload=True):
            response = await get()
        self.add_fetch(start, worker, keys, response, spent[0])
        return response

    @guarded
    def add_fetch(
        self, start: float, peer: str, keys: Iterable[Any], response: Any, deserialise_s: float
    ) -> None:
        status = str(response.get("status"))
        self.store.logs["fetches"].add(start, time(), peer, self.texts(keys), status, deserialise_s)

    @guarded
    def add_conversion(self, spent: list[float], label: Any, value: float, unit: str) -> None:
        """Add up the seconds that Dask metered for converting data; a callback of its meters."""
        activity = label[-1] if isinstance(label, tuple) else label
        if unit == "seconds" and activity in ("serialize", "deserialize", "compress", "decompress"):
            spent[0] += value

    def texts(self, keys: Iterable[Any]) -> str:
        """Several keys as one text."""
        return KEY_SEPARATOR.join(sorted(str(key) for key in keys))

    def _wrap_handler(self, name: str, wrapper: Callable[..., Awaitable[Any]]) -> None:
        handlers = self.server.handlers
        original = handlers.get(name)
        if original is None:
            return

        @wraps(original)  # Dask passes what the signature names: the connection, serializers
        async def handle(*comm: Any, **message: Any) -> Any:
            answer = partial(original, *comm, **message)
            return await (wrapper(answer, **message) if self.life.is_recording else answer())

        self.undo.append(replace_item(handlers, name, handle))

    async def serve(
        self, answer: Callable[[], Awaitable[Any]], keys: Iterable[Any] = (), who: Any = None, **_: Any
    ) -> Any:
        start, spent = time(), [0.0]
        with context_meter.add_callback(partial(self.add_conversion, spent), allow_offload=True):
            response = await answer()
        self.add_served(start, who, keys, spent[0])
        return response

    @guarded
    def add_served(self, start: float, who: Any, keys: Iterable[Any], serialise_s: float) -> None:
        self.store.logs["served"].add(start, time(), str(who), self.texts(keys), serialise_s)

    async def call_actor(
        self, answer: Callable[[], Awaitable[Any]], actor: Any = None, function: Any = "", **_: Any
    ) -> Any:
        start = time()
        response = await answer()
        self.add_actor_call(start, actor, function)
        return response

    @guarded
    def add_actor_call(self, start: float, actor: Any, function: Any) -> None:
        self.store.logs["actor_calls"].add(start, time(), str(actor), str(function))

    def counters(self) -> Mapping[Any, float]:
        return {name: total for name, total in self.server.digests_total.items() if type(name) is tuple}

    @guarded
    def summarise(self) -> None:
        super().summarise()
        for key in list(self.ended):
            self.add_ended(key, NAN, NAN)
        threads = {key: thread for thread, key in dict(self.server.active_threads).items()}
        for key, (arrived, ready, executing, seceded) in self.open.items():
            if key in threads:  # it still runs: its row has no end
                stamps = (arrived, ready, executing, executing, NAN, seceded, NAN, NAN, NAN)
                outcome = (threads[key], 0.0, NAN, "unfinished", NAN, NAN, NAN)
                self.store.logs["tasks"].add(str(key), *stamps, *outcome)
        for stack, seconds in self.profile():
            self.store.logs["profile"].add(json.dumps(stack), seconds)

    def profile(self) -> list[tuple[list[str], float]]:
        """What threads were doing, if Dask looks at all: each stack with its seconds."""
        if not dask.config.get("distributed.worker.profile.enabled"):
            return []
        self.server.cycle_profile()
        since, self.profiled = self.profiled, time()
        tree = merge(*(tree for when, tree in self.server.profile_history if when > since))
        interval_s = parse_timedelta(dask.config.get("distributed.worker.profile.interval"), default="ms")
        return [(stack, round(count * interval_s, 6)) for stack, count in stacks(tree, [])]


def between(begin: float, end: float, low: float, high: float) -> tuple[float, float]:
    """Move a computation between two moments: after it was given to a thread, before its end was known.

    Dask corrects its times with a delay that it estimates again and again, so taking off the present one may
    be wrong.
    """
    shift = min(high - end, 0.0) or max(low - begin, 0.0)
    return (begin, end) if isnan(shift) else (begin + shift, end + shift)


def stacks(node: dict[str, Any], above: list[str]) -> Iterator[tuple[list[str], int]]:
    """Each stack of a tree of samples that was sampled itself, outermost frame first, and how often."""
    inner = 0
    for child in node["children"].values():
        description = child["description"]
        inner += child["count"]
        frame = f"{description['name']} ({description['filename']}:{description['line_number']})"
        yield from stacks(child, [*above, frame])
    if above and node["count"] > inner:
        yield above, node["count"] - inner
