"""``dasklab.record(client, folder)``: attach the recorder to a running cluster, fetch its records, detach."""

# mypy: disable-error-code="no-untyped-call,import-untyped"
from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
from distributed import Client
from distributed.metrics import time

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.notices import warn
from dasklab.records import chunks, recorder
from dasklab.records.client import ClientRecorder
from dasklab.records.document import RECORD, Record
from dasklab.records.recorder.base import NAME
from dasklab.records.recorder.layout import FORM
from dasklab.records.recorder.scheduler import SchedulerRecorder
from dasklab.records.recorder.worker import WorkerRecorder

if TYPE_CHECKING:
    from types import TracebackType

LEASE_S = 120.0  # a recorder that is not visited for so long detaches itself
INTERVAL_S = 1.0  # between two visits to all processes
WORKERS_AT_ONCE = 8  # whose chunks pass through the scheduler together
ROUNDS = 5  # of one visit: a process that has more keeps the rest for the next
LAST_ROUNDS = 10_000
LOST = (OSError, TimeoutError, asyncio.TimeoutError)  # the cluster, or the connection to it, is gone
KEYS = ("plain", "hash")


class Session:
    """A recording, from attaching to detaching; use it with ``with`` or ``async with``."""

    def __init__(
        self,
        client: Client,
        folder: str | Path,
        code: bool = True,
        keys: str = "plain",
        explain: Callable[[Path], Any] = str,
    ) -> None:
        if keys not in KEYS:
            raise LabError(f"keys is '{keys}'; it must be one of {', '.join(KEYS)}")
        self.client, self.folder = client, Path(folder)
        self.hashed, self._explain = keys == "hash", explain
        self.mine = ClientRecorder(client, code)
        self.failures: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.workers: list[str] = []
        self._visiting: asyncio.Task[None] | None = None

    @property
    def _scheduler(self) -> Any:
        """The handlers of the scheduler, to be awaited."""
        return self.client.scheduler

    def __enter__(self) -> Session:
        if self.client.asynchronous:
            raise LabError("this client is asynchronous", "use: async with dasklab.record(client, ...)")
        self.client.sync(self._start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.mine.detach()
        self.client.sync(self._stop)

    async def __aenter__(self) -> Session:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.mine.detach()
        await self._stop()

    async def _start(self) -> None:
        if self.folder.exists() and any(self.folder.iterdir()):
            raise LabError(f"{self.folder} is not empty", "record into a new folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start = time()
        who = f"{self.client.id} of process {os.getpid()} on {socket.gethostname()}"
        scheduler, worker = by_value(
            SchedulerRecorder(f"{who}, into {self.folder}", self.hashed, LEASE_S),
            WorkerRecorder(who, self.hashed, LEASE_S),
        )
        try:
            await self._scheduler.register_scheduler_plugin(plugin=scheduler, name=NAME, idempotent=False)
        except RuntimeError as error:
            raise LabError(str(error)) from None
        await self._scheduler.register_worker_plugin(plugin=worker, name=NAME, idempotent=False)
        self.mine.attach()
        self._visiting = asyncio.ensure_future(self._visit_again_and_again())

    async def _visit_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self._visit(ROUNDS)
            except LOST as error:
                warn(f"the cluster did not answer the recorder ({error}); what it recorded so far is kept")
                return

    async def _stop(self) -> None:
        if self._visiting is not None:
            self._visiting.cancel()
            await asyncio.gather(self._visiting, return_exceptions=True)
        try:
            await self._visit(1, last=True)
            await self._visit(LAST_ROUNDS)
            await self._scheduler.dasklab_detach()
        except LOST as error:
            warn(f"the cluster did not answer the recorder ({error}); what it recorded so far is kept")
        self._keep("client", {"chunks": self._own_chunks()})
        record = Record(
            form=FORM,
            client=self.client.id,
            start=self.start,
            stop=time(),
            lost=self.lost,
            failures=self.failures,
        )
        atomic.write_text(self.folder / Record.FILE, record.model_dump_json(indent=1) + "\n")

    async def _visit(self, rounds: int, last: bool = False) -> None:
        """Fetch what scheduler and workers have recorded."""
        options = {"last": True} if last else {}
        request = time()
        reply = await self._scheduler.dasklab_take(**options)
        self.mine.store.logs["clock"].add(request, reply["now"], time())
        self._keep("scheduler", reply)
        self.workers = reply["workers"]
        for _ in range(rounds - 1):
            if not reply["more"]:
                break
            reply = await self._scheduler.dasklab_take()
            self._keep("scheduler", reply)
        for first in range(0, len(self.workers), WORKERS_AT_ONCE):
            await self._visit_workers(self.workers[first : first + WORKERS_AT_ONCE], rounds, options)
        self._keep("client", {"chunks": self._own_chunks()})

    async def _visit_workers(self, addresses: Iterable[str], rounds: int, options: dict[str, Any]) -> None:
        waiting = list(addresses)
        for _ in range(rounds):
            if not waiting:
                return
            replies = await self._scheduler.broadcast(
                msg={"op": "dasklab_take", **options}, workers=waiting, on_error="return"
            )
            options = {}
            answers = {address: reply for address, reply in replies.items() if isinstance(reply, dict)}
            for address, reply in answers.items():
                self._keep(address, reply)
            waiting = [address for address, reply in answers.items() if reply.get("more")]

    def _own_chunks(self) -> list[bytes]:
        while self.mine.store.pack():
            pass
        return self.mine.store.take(float("inf"))

    def _keep(self, process: str, reply: dict[str, Any]) -> None:
        """Write chunks down, and remember what a process lost or failed at."""
        chunks.append(self.folder / RECORD, process, reply.get("chunks", ()))
        if reply.get("lost"):
            self.lost[process] = reply["lost"]
        for failure, count in reply.get("failures", {}).items():
            self.failures[f"{process}: {failure}"] = count

    def explain(self) -> Any:
        """Break down the recorded time; a notebook shows it as sentences, a table and a picture."""
        return self._explain(self.folder)


def by_value(*plugins: Any) -> list[bytes]:
    """Pickle plugins with their code, so that nothing has to be installed where they go."""
    modules = [sys.modules[name] for name in sorted(sys.modules) if name.startswith(recorder.__name__)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return [cloudpickle.dumps(plugin) for plugin in plugins]
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
