"""Dask's own Scheduler, Worker and Client with what reaches outside of the simulation taken off."""

# mypy: disable-error-code="misc,no-untyped-call"
from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
import distributed.client
import distributed.core
import distributed.utils
import distributed.versions
import distributed.worker
from dask.utils import parse_timedelta
from distributed import Scheduler, Worker
from distributed.utils import wait_for
from distributed.worker_state_machine import TaskState

from dasklab.model.dask_settings import flat
from dasklab.sim.kernel import Kernel, VirtualLoop

QUIET = {  # what only looks at this process, or starts threads
    "distributed.admin.tick.interval": "1h",
    "distributed.admin.tick.cycle": "1h",
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.http.routes": [],
    "distributed.scheduler.http.routes": [],
    "distributed.comm.offload": False,
}


class NoMonitor:
    """Stands for what Dask tells of its process."""

    def update(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def recent(self) -> dict[str, Any]:
        """What a worker's heartbeat tells."""
        return {"cpu": 0, "memory": 0}

    def range_query(self, start: int = 0) -> dict[str, Any]:
        """Nothing."""
        return {}

    def get_process_memory(self) -> int:
        """Never full."""
        return 0

    def close(self) -> None:
        """Nothing to close."""


class NoDirectory:
    """Stands for Dask's scratch directories."""

    def __init__(self, base_dir: str = "") -> None:
        self.base_dir = self.dir_path = "/nowhere"  # it is sent: as long wherever the project is

    def new_work_dir(self, **_: Any) -> NoDirectory:
        """The same."""
        return self

    def release(self) -> None:
        """Nothing to remove."""


class SimScheduler(Scheduler):
    """Without its dashboard."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """No pages."""


class SimWorker(Worker):
    """Without its pages."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """No pages."""


@contextmanager
def adapted(kernel: Kernel, settings: dict[str, Any]) -> Iterator[None]:
    """Within, Dask runs in the simulation: ``settings`` are its own, as in the trial's file.

    They are set one by one: Dask takes a mapping for all that there is below its key.
    """
    places: list[tuple[Any, str, Any]] = [
        (distributed.core, "WorkSpace", NoDirectory),
        (distributed.core, "SystemMonitor", NoMonitor),
        # all processes are this one; each new worker's versions are compared with those of all before it
        (distributed.versions, "error_message", lambda *_, **__: {"warning": "", "error": ""}),
        (distributed.utils, "sync", _sync(kernel)),
        (distributed.client, "sync", _sync(kernel)),
        # the address in memory, which it uses, differs from process to process
        (TaskState, "__hash__", lambda task: hash(task.key)),
    ]
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    logging.getLogger("distributed").setLevel(logging.ERROR)
    try:
        for owner, name, value in places:
            setattr(owner, name, value)
        with dask.config.set(QUIET), dask.config.set(dict(flat(settings))):
            yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


def _sync(kernel: Kernel) -> Callable[..., Any]:
    """What Dask's blocking calls wait with: time goes on until the answer is there."""

    def sync(
        loop: Any,
        func: Callable[..., Awaitable[Any]],
        *args: Any,
        callback_timeout: Any = None,
        **kwargs: Any,
    ) -> Any:
        timeout = parse_timedelta(callback_timeout, "s")

        async def call() -> Any:
            awaited = func(*args, **kwargs)
            return await (awaited if timeout is None else wait_for(awaited, timeout))

        return complete(kernel, loop.asyncio_loop, call())

    return sync


def complete(kernel: Kernel, loop: VirtualLoop, coroutine: Any) -> Any:
    """Let time pass until a coroutine is through, in its process's loop; return what it returned."""
    task = loop.create_task(coroutine)
    kernel.await_(task.done)
    return task.result()
