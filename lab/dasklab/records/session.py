"""``dasklab.record(client, folder)``: attach the recorder to a running cluster, fetch its records, detach."""

# mypy: disable-error-code="no-untyped-call,import-untyped"
from __future__ import annotations

import asyncio
import os
import platform
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from distributed import Client
from distributed.metrics import time

from dasklab.errors import LabError
from dasklab.notices import warn
from dasklab.records import chunk_file
from dasklab.records.client import ClientRecorder
from dasklab.records.document import RECORD, Record, RecordedRepeat
from dasklab.records.recorder.base import NAME, Owner
from dasklab.records.recorder.layout import FORM
from dasklab.records.recorder.life import SessionEvent, SessionLife, SessionState
from dasklab.records.recorder.privacy import Privacy
from dasklab.records.recorder.process import NAN
from dasklab.records.recorder.scheduler import SchedulerRecorder
from dasklab.records.recorder.worker import WorkerRecorder
from dasklab.records.travel import other_python, pack_plugin
from dasklab.records.user_lines import UserProgram

if TYPE_CHECKING:
    from types import TracebackType

LEASE_S = 120.0  # a recorder that is not visited for so long detaches itself
HELD_LEASE_S = 86_400.0  # longer than any repeat; a recorder also detaches when its client leaves
FETCH_AFTER_INTERRUPT_S = 10.0
REQUEST_TIMEOUT_S = 60.0  # a busy scheduler may take this long
TURN_S = 0.02  # an event loop that waits for so long is not busy; on a busy machine less may pass unseen
INTERVAL_S = 1.0  # between two visits to all processes
WORKERS_AT_ONCE = 8  # their chunks pass through the scheduler together
ROUNDS_OF_A_VISIT = 5  # a process that has more keeps the rest for the next
LAST_ROUNDS = 10_000
LOST = (OSError, TimeoutError, asyncio.TimeoutError)  # the cluster, or the connection to it, is gone
KEYS = ("plain", "hash")
MINE = platform.python_version()
PROCESS = uuid4().hex  # a name of this process that no other has
OPEN_RECORDS: set[str] = set()  # whose blocks have not ended


class Session:
    """A recording, from attaching to detaching; use it with ``with`` or ``async with``.

    It visits all processes every second and fetches what they recorded. With ``hold`` they keep it until
    ``collect`` is called, so that nothing but Dask's own traffic is on the network while a repeat is timed.
    """

    def __init__(
        self,
        client: Client,
        folder: str | Path,
        code: bool = True,
        keys: str = "plain",
        explain: Callable[[Path], Any] = str,
        whatif: Callable[..., Any] = str,
        scale: Callable[..., Any] = str,
        max_mb: float = 1000,
        hold: bool = False,
        watches: bool = False,
    ) -> None:
        """Prepare to record.

        Args:
            hold: let all processes keep what they recorded until ``collect`` is called.
            watches: what is recorded is the work of other programs, not of this one.
        """
        if keys not in KEYS:
            raise LabError(f"keys is '{keys}'; it must be one of {', '.join(KEYS)}")
        self.client, self.folder = client, Path(folder)
        self.privacy = Privacy(keys == "hash", code)
        self._explain, self._whatif, self._scale = explain, whatif, scale
        self.watches, self.stop = watches, NAN
        self.hold, self.lease_s = hold, HELD_LEASE_S if hold else LEASE_S
        self.own_recorder = ClientRecorder(client, self.privacy, hold)
        self.repeats: list[RecordedRepeat] = []
        self._repeat: int | None = None  # number of the repeat that what is fetched belongs to
        self.failures: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.workers: list[str] = []
        self._known: dict[str, str] = {}  # of each worker: the version of Python that leaves it out, or ""
        self.life = SessionLife()
        self.complete_until: float | None = None
        self.beyond_limit: Counter[str] = Counter()
        self._bytes_left = max_mb * 1e6
        self._chunks_bytes = 0

    @property
    def is_recording(self) -> bool:
        """Whether neither the cluster nor the folder has failed so far."""
        return self.life.is_fetching

    @property
    def complete(self) -> bool:
        """Whether the recorder has detached and nothing is missing."""
        return self.life.is_complete

    @property
    def _scheduler(self) -> Any:
        """The handlers of the scheduler, to be awaited.

        Raises:
            OSError: the client has been closed.
        """
        if self.client.scheduler is None:
            raise OSError("the client is closed")
        return self.client.scheduler

    def __enter__(self) -> Session:
        if self.client.asynchronous:
            raise LabError("this client is asynchronous", "use: async with dasklab.record(client, ...)")
        self.own_recorder.program = UserProgram()
        self.client.sync(self._start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop: Any = self.client.loop
        try:
            self.stop = time()
            self._end_turn()
            self._leave()
        finally:  # Ctrl-C ends the block, and a second one follows soon: the cluster is left as it was
            if loop.asyncio_loop.is_closed():
                self._warn_of_cluster("the client is closed")
                self._keep_own()
            else:
                self._finish(asyncio.run_coroutine_threadsafe(self._stop(), loop.asyncio_loop))

    def _end_turn(self) -> None:
        """Let the client's event loop wait once: only then is it recorded for how long it was busy."""
        loop: Any = self.client.loop
        if loop.asyncio_loop.is_running():
            turn = asyncio.run_coroutine_threadsafe(asyncio.sleep(TURN_S), loop.asyncio_loop)
            with suppress(FutureTimeoutError):
                turn.result(FETCH_AFTER_INTERRUPT_S)

    def _finish(self, stopping: Future[None]) -> None:
        """Wait until the recorder has stopped; after Ctrl-C for some time only."""
        try:
            stopping.result()
        except KeyboardInterrupt:
            with suppress(FutureTimeoutError):
                stopping.result(FETCH_AFTER_INTERRUPT_S)
            raise

    async def __aenter__(self) -> Session:
        self.own_recorder.program = UserProgram()
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop = time()
        self._leave()
        await self._stop()

    def _leave(self) -> None:
        OPEN_RECORDS.discard(self.owner.record)
        self.own_recorder.detach()

    async def _start(self) -> None:
        if self.folder.exists() and any(self.folder.iterdir()):
            raise LabError(f"{self.folder} is not empty", "record into a new folder")
        if self.client.scheduler is None:
            raise LabError("the client is closed", "connect a new one: Client(...)")
        self.start = time()
        self.owner = self._owner()
        scheduler = pack_plugin(SchedulerRecorder(self.owner, self.privacy, self.lease_s))
        worker = pack_plugin(WorkerRecorder(self.owner, self.privacy, self.lease_s))
        if python := other_python(await self._scheduler.versions()):
            raise LabError(
                f"the scheduler runs Python {python}, this program {MINE}", "record with the same Python"
            )
        try:
            await self._scheduler.register_scheduler_plugin(plugin=scheduler, name=NAME, idempotent=False)
        except RuntimeError as error:
            raise LabError(str(error)) from None
        self.life.move(SessionEvent.ATTACH)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write()
            await self._attach_workers(worker)
            self.own_recorder.attach(lines=not (self.hold or self.watches))
        except BaseException:
            self.own_recorder.detach()
            await self._detach()
            raise
        OPEN_RECORDS.add(self.owner.record)
        self._stopping = asyncio.Event()
        self._visiting = asyncio.ensure_future(self._visit_again_and_again())
        self.start = time()  # the user's block begins; the time for attaching is not part of it

    def _owner(self) -> Owner:
        client = self.client.id
        who = f"{client} of process {os.getpid()} on {socket.gethostname()}, into {self.folder}"
        return Owner(uuid4().hex, client, PROCESS, who, frozenset(OPEN_RECORDS))

    async def _find_left_out(self, addresses: Iterable[str]) -> None:
        """Name new workers whose Python cannot run the recorder; they are not visited."""
        if new := [address for address in addresses if address not in self._known]:
            request = self._scheduler.broadcast(msg={"op": "versions"}, workers=new, on_error="return")
            for address, versions in (await _answer(request)).items():
                self._known[address] = other_python(versions)
                if python := self._known[address]:
                    self.failures[f"{address}: attach: Python {python} instead of {MINE}"] = 1
                    warn(f"{address} is not recorded: it runs Python {python}, this program {MINE}")

    async def _attach_workers(self, plugin: bytes) -> None:
        replies = await self._scheduler.register_worker_plugin(plugin=plugin, name=NAME, idempotent=False)
        for address, reply in replies.items():
            if reply.get("status") == "error":
                self.failures[f"{address}: attach: {reply.get('exception_text')}"] = 1
                warn(f"{address} is not recorded: {reply.get('exception_text')}")

    async def _visit_again_and_again(self) -> None:
        while not self.hold and self.is_recording and not await self._stops_within(INTERVAL_S):
            await self._visit(ROUNDS_OF_A_VISIT)

    async def _stops_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except (TimeoutError, asyncio.TimeoutError):
            return False
        return True

    async def _stop(self) -> None:
        """Fetch the rest and detach, whatever happens: it must not cost the user the result."""
        try:
            self._stopping.set()
            await self._visiting  # not cancelled: what a process handed over would be lost
            self._repeat = None
            await self._fetch_all()
        finally:
            has_detached = await self._detach()
            self.life.move(SessionEvent.DETACH if has_detached else SessionEvent.LOSE_CLUSTER)
        self._keep_own()

    async def _fetch_all(self) -> None:
        await self.own_recorder.finish()
        await self._visit(1, summary=True)
        await self._visit(LAST_ROUNDS)

    def collect(self, repeat: RecordedRepeat | None = None) -> None:
        """Fetch what was recorded since the last call, as that of a repeat that has ended, or of none."""
        self.client.sync(self._collect, repeat)

    async def _collect(self, repeat: RecordedRepeat | None) -> None:
        lost = dict(self.lost)
        self._repeat = repeat.number if repeat else None
        await self._fetch_all()
        if repeat:
            lossy = sum(rows > lost.get(process, 0) for process, rows in self.lost.items())
            self.repeats.append(replace(repeat, lost=lossy))
            self._into_file(self._write)

    async def _detach(self) -> bool:
        """Detach from the cluster; return whether it said so."""
        try:
            return await _answer(self._scheduler.dasklab_detach(record=self.owner.record)) is not None
        except LOST as error:
            self._warn_of_cluster(str(error) or type(error).__name__)
            return False

    def _warn_of_cluster(self, why: str) -> None:
        if self.is_recording:
            warn(f"the cluster did not answer the recorder ({why}); what it recorded so far is kept")
        self.life.move(SessionEvent.LOSE_CLUSTER)

    async def _visit(self, rounds: int, summary: bool = False) -> None:
        """Fetch what scheduler and workers have recorded, unless an earlier visit failed."""
        if not self.is_recording:
            return
        try:
            request = time()
            options = {"record": self.owner.record} | ({"summary": True} if summary else {})
            drained = await self._fetch(rounds, options)
            if drained and self.life.state is SessionState.RECORDING:
                self.complete_until = request
        except LOST as error:
            self._warn_of_cluster(str(error) or type(error).__name__)
        self._keep_own()

    async def _fetch(self, rounds: int, options: dict[str, Any]) -> bool:
        """Visit all processes; return whether none has more."""
        request = time()
        reply = await self._take(options)
        self.own_recorder.store.logs["clock"].add(request, reply["now"], time())
        self._keep("scheduler", reply)
        self.workers = reply["workers"]
        for _ in range(rounds - 1):
            if not reply["more"]:
                break
            reply = await self._take({"record": self.owner.record})
            self._keep("scheduler", reply)
        drained = not reply["more"]
        await self._find_left_out(self.workers)
        recorded = [address for address in self.workers if not self._known.get(address)]
        for first in range(0, len(recorded), WORKERS_AT_ONCE):
            group = recorded[first : first + WORKERS_AT_ONCE]
            drained = await self._visit_workers(group, rounds, options) and drained
        return drained

    async def _take(self, options: dict[str, Any]) -> dict[str, Any]:
        reply = await _answer(self._scheduler.dasklab_take(**options))
        if not isinstance(reply, dict):
            raise OSError("the scheduler has no recorder any more: was it started again?")
        return reply

    async def _visit_workers(self, addresses: Iterable[str], rounds: int, options: dict[str, Any]) -> bool:
        waiting = list(addresses)
        for _ in range(rounds):
            if not waiting:
                break
            message = {"op": "dasklab_take", **options}
            request = self._scheduler.broadcast(msg=message, workers=waiting, on_error="return")
            replies = await _answer(request)
            options = {"record": self.owner.record}
            answers = {address: reply for address, reply in replies.items() if isinstance(reply, dict)}
            for address, reply in answers.items():
                self._keep(address, reply)
            waiting = [address for address, reply in answers.items() if reply.get("more")]
        return not waiting

    def _keep_own(self) -> None:
        store = self.own_recorder.store
        while store.pack():
            pass
        reply = {"chunks": store.take(float("inf")), "lost": store.lost, "failures": dict(store.failures)}
        self._keep("client", reply)
        self._into_file(self._write)

    def _write(self) -> None:
        identity: dict[str, Any] = {"form": FORM, "client": self.client.id, "start": self.start}
        record = Record(
            **identity,
            stop=time() if isnan(self.stop) else self.stop,
            watches=self.watches,
            lost=self.lost,
            failures=self.failures,
            complete=self.complete,
            complete_until=self.complete_until,
            beyond_limit=dict(self.beyond_limit),
            keys="plain",
            code=True,
            chunks_bytes=self._chunks_bytes,
            repeats=tuple(self.repeats),
        )
        record.concealed(self.privacy).write(self.folder)

    def _keep(self, process: str, reply: dict[str, Any]) -> None:
        """Write chunks down, and remember what a process lost or failed at."""
        if departed := reply.get("departed"):
            self._keep(departed["address"], departed)
        self._into_file(partial(self._append, process, reply.get("chunks", ())))
        if reply.get("lost"):
            self.lost[process] = reply["lost"]
        for failure, count in reply.get("failures", {}).items():
            self.failures[f"{process}: {failure}"] = count
            if failure.startswith("attach: "):
                warn(f"{process} is not recorded: {failure.removeprefix('attach: ')}")

    def _append(self, process: str, chunks: Iterable[bytes]) -> None:
        """Write chunks down; beyond the limit only count their rows, except those of short tables."""
        within_limit = []
        for chunk in chunks:
            table, rows = chunk_file.describe(chunk)
            if table in chunk_file.SHORT_TABLES or len(chunk) <= self._bytes_left:
                within_limit.append(chunk)
                self._bytes_left -= len(chunk)
            else:
                self._reach_limit()
                self.beyond_limit[table] += rows
        self._chunks_bytes += chunk_file.append(self.folder / RECORD, process, within_limit, self._repeat)

    def _reach_limit(self) -> None:
        """Leave out all rows from now on, so that the tables end at one moment."""
        warn(f"{self.folder}: the record has reached its limit; what follows is counted and not written")
        self._bytes_left = 0
        self.life.move(SessionEvent.REACH_LIMIT)

    def _into_file(self, write: Callable[[], None]) -> None:
        """Write, until that fails once: what follows a frame that was cut could not be read."""
        if self.life.is_writable:
            try:
                write()
            except OSError as error:
                self.life.move(SessionEvent.LOSE_FOLDER)
                warn(f"{self.folder}: the record ends here, it cannot be written: {error.strerror or error}")

    def explain(self) -> Any:
        """Break down the recorded time; a notebook shows it as sentences, a table and a picture."""
        return self._explain(self.folder)

    def why(self, clause: str = "") -> Any:
        """List the tasks, transfers, threads and seconds that the explanation, or a clause of it, rests on.

            run.why("waiting for a lock")

        Raises:
            LabError: the explanation has no such clause.
        """
        return self._explain(self.folder).why(clause)

    def whatif(self, *, seeds: int = 4, **changes: Any) -> Any:
        """Predict how long the recorded block would take with other settings.

            run.whatif(workers=12, rate_mbit=1000)
            run.whatif(dask={"distributed.scheduler.worker-saturation": 1.0})

        Args:
            seeds: number of simulations of each row.
            changes: settings as `dasklab whatif` has them.

        Raises:
            LabError: a setting is unknown or impossible, or the record cannot be simulated.
        """
        return self._whatif(self.folder, seeds, changes)

    def scale(self, name: str = "workers", *amounts: float, seeds: int = 4) -> Any:
        """Predict how long the recorded block would take with other sizes of the cluster, and their costs.

            run.scale("workers", 2, 4, 8)

        Args:
            name: ``workers``, ``threads`` or ``rate_mbit``.
            amounts: without any, a half to four times of what there was.
            seeds: number of simulations of each size.

        Raises:
            LabError: it cannot be scaled, or the record cannot be simulated.
        """
        return self._scale(self.folder, name, amounts, seeds)


async def _answer(request: Awaitable[Any]) -> Any:
    """Await an answer, for some time: Dask answers no requests to a recorder that has detached itself."""
    return await asyncio.wait_for(request, REQUEST_TIMEOUT_S)
