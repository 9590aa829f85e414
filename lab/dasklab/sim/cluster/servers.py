"""Dask's own Scheduler, Worker and Client, without the parts that reach outside the simulation."""

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

from dasklab.model.settings.dask_settings import flatten
from dasklab.sim.kernel import Kernel, VirtualLoop

QUIET = {  # no threads, no web pages, and nothing that observes the real process
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
    """Takes the place of Dask's SystemMonitor: a process without CPU use and memory."""

    def update(self) -> dict[str, Any]:
        return {}

    def recent(self) -> dict[str, Any]:
        return {"cpu": 0, "memory": 0}

    def range_query(self, start: int = 0) -> dict[str, Any]:
        return {}

    def get_process_memory(self) -> int:
        return 0

    def close(self) -> None:
        pass


class NoDirectory:
    """Takes the place of Dask's WorkSpace: no scratch directory on any disk."""

    def __init__(self, base_dir: str = "") -> None:
        # Dask sends this path: its length must not depend on where the project is
        self.base_dir = self.dir_path = "/nowhere"

    def new_work_dir(self, **_: Any) -> NoDirectory:
        return self

    def release(self) -> None:
        pass


class SimScheduler(Scheduler):
    """Dask's Scheduler without its dashboard."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        pass


class SimWorker(Worker):
    """Dask's Worker without its web pages."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        pass


@contextmanager
def adapted(kernel: Kernel, settings: dict[str, Any]) -> Iterator[None]:
    """Let Dask run in the simulation, with Dask settings as a trial has them. Undone on exit.

    The settings are flattened first: ``dask.config.set`` would replace everything below a key by a mapping.
    """
    patches: list[tuple[Any, str, Any]] = [
        (distributed.core, "WorkSpace", NoDirectory),
        (distributed.core, "SystemMonitor", NoMonitor),
        # All processes are this one. Dask compares each new worker's versions with those of all others.
        (distributed.versions, "error_message", lambda *_, **__: {"warning": "", "error": ""}),
        (distributed.utils, "sync", _sync(kernel)),
        (distributed.client, "sync", _sync(kernel)),
        # By default an address in memory, which differs from process to process.
        (TaskState, "__hash__", lambda task: hash(task.key)),
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    logging.getLogger("distributed").setLevel(logging.ERROR)
    try:
        for owner, name, value in patches:
            setattr(owner, name, value)
        with dask.config.set(QUIET), dask.config.set(dict(flatten(settings))):
            yield
    finally:
        for owner, name, value in originals:
            setattr(owner, name, value)


def _sync(kernel: Kernel) -> Callable[..., Any]:
    """Return the function that Dask's blocking calls wait with: it lets virtual time pass."""

    def sync(
        loop: Any,
        func: Callable[..., Awaitable[Any]],
        *args: Any,
        callback_timeout: Any = None,
        **kwargs: Any,
    ) -> Any:
        timeout = parse_timedelta(callback_timeout, "s")

        async def call() -> Any:
            awaitable = func(*args, **kwargs)
            return await (awaitable if timeout is None else wait_for(awaitable, timeout))

        return complete(kernel, loop.asyncio_loop, call())

    return sync


def complete(kernel: Kernel, loop: VirtualLoop, coroutine: Any) -> Any:
    """Run a coroutine in a process's loop and let virtual time pass until it returns; return its result."""
    task = loop.create_task(coroutine)
    kernel.wait_for(task.done)
    return task.result()
