"""What the recorders of scheduler and workers have in common."""

# mypy: disable-error-code="no-untyped-call,attr-defined"
from __future__ import annotations

import asyncio
import gc
import json
import platform
import threading
from collections.abc import Callable, Mapping
from functools import partial, wraps
from math import isnan
from time import process_time
from typing import Any, NamedTuple

import dask
import distributed
from distributed.metrics import time
from tornado.ioloop import PeriodicCallback

from dasklab.model.settings.plain_dask import plain_settings
from dasklab.records.recorder.layout import COMMON, FORM
from dasklab.records.recorder.life import Life, RecorderEvent
from dasklab.records.recorder.loops import watch_loop
from dasklab.records.recorder.patches import replace, replace_item
from dasklab.records.recorder.privacy import Privacy
from dasklab.records.recorder.process import (
    CPU,
    WAITING_FOR_CPU,
    MachineCpu,
    ThreadCpu,
    ThreadWaits,
    kernel_counters,
    machine,
    network_interfaces,
    resident_bytes,
)
from dasklab.records.recorder.stacks import InterpreterUse, WatchedProcess, watch_stacks
from dasklab.records.recorder.store import CHUNK_ROWS, Store

NAME = "dasklab-recorder"
MAX_LOG_ROWS = 50_000
ANSWER_CHUNK_BYTES = 2_000_000
TICK_MS = 250
CHUNKS_PER_TICK = 4  # some milliseconds each; while a repeat is timed nobody else packs
LONG_GC_S = 0.001


def guarded(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Make a hook harmless: a recorder must not disturb what it records. What it raises is counted."""

    @wraps(hook)
    def harmless(self: Recorder, *args: Any, **options: Any) -> Any:
        try:
            return hook(self, *args, **options)
        except Exception as error:  # noqa: BLE001
            self.store.failures[f"{hook.__name__}: {describe(error)}"] += 1

    return harmless


def describe(error: BaseException) -> str:
    """Return an error's type and texts. Methods of the error are not called: they may be the user's."""
    arguments = BaseException.args.__get__(error)
    texts = [str(argument) for argument in arguments if type(argument) in (str, int, float)]
    return f"{type(error).__name__}({', '.join(texts)})"


class Owner(NamedTuple):
    """Who records.

    Attributes:
        record: a unique name of this recording; requests of another one are not answered.
        client: the id of the client that records.
        process: a unique name of its process.
        text: a description, for a message to somebody else who wants to record.
        others: names of the recordings that are open in the same process.
    """

    record: str
    client: str
    process: str
    text: str
    others: frozenset[str]


class Recorder:
    """What the recorders of scheduler and workers have in common."""

    tables = COMMON

    def __init__(self, owner: Owner, privacy: Privacy, lease_s: float) -> None:
        """Prepare to record.

        Args:
            owner: who records.
            privacy: what must not be stored in plain text.
            lease_s: detach if nobody takes records for so long.
        """
        self.owner, self.privacy, self.lease_s = owner, privacy, lease_s
        self.life = Life()
        self.undo: list[Callable[[], Any]] = []

    def attach(self, server: Any) -> None:
        """Begin to record what this server does."""
        self.server, self.asked = server, time()
        self.store = Store(self.tables, MAX_LOG_ROWS, privacy=self.privacy)
        self.is_described = False
        self.loop_thread, self.waits = threading.get_native_id(), ThreadWaits()
        self.totals, self.interpreter, self.machine = self.all_counters(), InterpreterUse(), MachineCpu()
        self.undo.append(watch_loop(server.io_loop, self.store.logs["busy"]))
        self.undo.append(watch_stacks(self.watched()))
        gc.callbacks.append(self.on_gc)
        self.undo.append(partial(gc.callbacks.remove, self.on_gc))
        self.undo.append(replace_item(server.handlers, "dasklab_take", self.take))
        Recorder.sample(self, time())  # a loop that is blocked from now on takes no sample
        ticking = PeriodicCallback(self.tick, TICK_MS)
        ticking.start()
        self.undo.append(ticking.stop)

    def watched(self) -> WatchedProcess:
        """Return whose stacks may be sampled: the event loop's; a worker's tasks, too."""
        return WatchedProcess(self.store, self.server.io_loop, interpreter=self.interpreter)

    def detach(self) -> None:
        """Undo everything, the latest change first."""
        self.life.move(RecorderEvent.DETACH)
        self._undo_all()

    def _undo_all(self) -> None:
        while self.undo:
            self._undo(self.undo.pop())

    @guarded
    def _undo(self, change: Callable[[], Any]) -> None:
        change()

    @guarded
    def stamp(self, batched: Any, note: Callable[[dict[str, Any], float, float], None]) -> None:
        """Call ``note(message, now, due)`` for each message of a stream of batches as it leaves.

        ``due`` is until when Dask's timer held the batch back.
        """
        comm, due = batched.comm, 0.0
        if comm is None or hasattr(comm, "dasklab_write"):
            return
        write = comm.write
        mark = replace(comm, "dasklab_write", write)

        def stamped(messages: Any, *args: Any, **options: Any) -> Any:
            nonlocal due
            if not self.life.is_recording:  # detached, below somebody else's method
                return write(messages, *args, **options)
            now = time()
            self.note_all(note, messages, now, due)
            due = now + batched.interval
            return write(messages, *args, **options)

        self.undo += [mark, replace(comm, "write", stamped)]

    @guarded
    def note_all(self, note: Callable[..., None], messages: Any, now: float, due: float) -> None:
        for message in messages:
            if type(message) is dict:
                note(message, now, due)

    def on_gc(self, phase: str, info: dict[str, Any]) -> None:
        now = time()
        if phase == "start":
            self.gc_start = now
        elif now - getattr(self, "gc_start", now) > LONG_GC_S:
            self.store.logs["pauses"].add(self.gc_start, now)

    @guarded
    def tick(self) -> None:
        """Four times a second: sample, pack what has come together, and give up if nobody asks any more."""
        now = time()
        self.sample(now)
        for _ in range(CHUNKS_PER_TICK):
            self.store.pack(CHUNK_ROWS)
        if now - self.asked > self.lease_s:
            self.abandon()

    def sample(self, now: float) -> None:
        loop, waited_s = ThreadCpu.of(self.loop_thread), self.waits.seconds()
        row = (now, process_time(), waited_s, loop.waited_s, resident_bytes(), loop.ran_s)
        self.store.logs["cpu"].add(*row, self.interpreter.held_s, self.machine.seconds())

    def abandon(self) -> None:
        """Detach, because nobody takes the records any more."""
        self.life.move(RecorderEvent.ABANDON)
        self.detach()

    async def take(self, record: str, summary: bool = False) -> dict[str, Any] | None:
        """Hand over some chunks: a handler of the server.

        Args:
            summary: first add what is recorded once, at the end of a record or of a repeat.
        """
        if record != self.owner.record:
            return None
        self.asked = time()
        if summary:
            self.summarise()
        while self.store.nbytes < ANSWER_CHUNK_BYTES and self.store.pack():
            await asyncio.sleep(0)  # let the event loop do other work
        chunks = self.store.take(ANSWER_CHUNK_BYTES)
        more = bool(self.store.chunks) or any(log.rows for log in self.store.logs.values())
        head = {"form": FORM, "now": time(), "address": self.server.address, "lost": self.store.lost}
        return head | {"chunks": chunks, "more": more, "failures": dict(self.store.failures)}

    @guarded
    def summarise(self) -> None:
        """Record what changed since the last summary, and what this process is, which is recorded once."""
        self.sample(time())
        self.add_rises()
        if not self.is_described:
            self.is_described = True
            self.describe_process()

    def describe_process(self) -> None:
        loop = type(self.server.io_loop.asyncio_loop).__module__.partition(".")[0]
        versions = {"python": platform.python_version(), "distributed": distributed.__version__}
        name, cpus = machine()
        about = {"loop": loop, **versions, "machine": name, "cpus": str(cpus)}
        for fact, value in about.items():
            self.store.logs["about"].add(fact, value)
        for setting, value in plain_settings(dask.config.get("distributed")):
            self.store.logs["config"].add(setting, json.dumps(value, default=str))
        for interface in network_interfaces():
            self.store.logs["interfaces"].add(*interface)

    def counters(self) -> Mapping[Any, float]:
        """Return Dask's counters of this server, by name."""
        return {}

    def all_counters(self) -> dict[Any, float]:
        """Return the counters of this server, of its process, and of its host."""
        waited_s = self.waits.seconds()
        known_waits = {} if isnan(waited_s) else {WAITING_FOR_CPU: waited_s}
        return {**self.counters(), **kernel_counters(), CPU: process_time(), **known_waits}

    def add_rises(self) -> None:
        """Record by how much counters rose since they were read last."""
        totals = self.all_counters()
        for name, total in totals.items():
            labels = [str(part) for part in name] if isinstance(name, tuple) else [str(name)]
            if (rise := total - self.totals.get(name, 0.0)) != 0:
                self.store.logs["metrics"].add("/".join(labels), float(rise))
        self.totals = totals
