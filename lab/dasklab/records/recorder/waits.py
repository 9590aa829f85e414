"""What tasks wait for while they keep a thread: locks, queues, events, and results of tasks of their own.

Such calls go through ``SyncMethodMixin.sync``, which all clients and primitives of a process share. Only
calls from the thread of a task are recorded. A lock is recorded, too, while a task holds it. When a task
has ended, its thread asks the result for its size, which is recorded as well.
"""

# mypy: disable-error-code="no-untyped-call,attr-defined,method-assign,assignment"
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from distributed.metrics import time
from distributed.utils import SyncMethodMixin

from dasklab.records.recorder.patches import Undo, replace, share

LEAST_S = 0.001  # shorter waits are not recorded
NO_PRIMITIVES = CLIENT, HELD, SIZEOF = "Client", "held", "sizeof"
PRIMITIVES = ("Lock", "MultiLock", "Semaphore", "Event", "Queue", "Variable", "PipelineLock")
Note = Callable[[float, float, Any, str, Any], None]  # start, stop, key, kind, and the primitive


def watch_waits(address: str, note: Note) -> Callable[[], None]:
    """Call ``note`` for the waits of tasks of the worker at an address; return how to end that."""
    return share("_dasklab_waits", address, note, _wrap)


def _wrap(notes: dict[str, Note]) -> Undo:
    from distributed import worker as worker_module  # here: its state cannot travel with this module

    thread_state, measure = worker_module.thread_state, worker_module.sizeof
    original = SyncMethodMixin.sync
    holding: dict[tuple[Any, int], float] = {}  # since when a task holds a lock, by its key and the lock's id

    def current() -> tuple[Any, Note | None]:
        """Return the key of the task that this thread runs, and what to call for its waits."""
        key = getattr(thread_state, "key", None)
        worker = (getattr(thread_state, "execution_state", None) or {}).get("worker")
        return key, notes.get(worker.address) if key is not None and worker is not None else None

    def sizeof(value: Any) -> int:
        start = time()
        try:
            return int(measure(value))
        finally:
            stop = time()
            key, note = current() if stop - start > LEAST_S else (None, None)
            if note is not None:
                note(start, stop, key, SIZEOF, None)

    def sync(self: Any, function: Any, *args: Any, **options: Any) -> Any:
        key, note = current()
        if note is None:
            return original(self, function, *args, **options)
        caller = sys._getframe(1)
        owner, method = caller.f_locals.get("self"), caller.f_code.co_name
        kind = type(owner).__name__ if type(owner).__name__ in PRIMITIVES else CLIENT
        start = time()
        if method == "release" and (since := holding.pop((key, id(owner)), None)):
            note(since, start, key, HELD, owner)
        try:
            return original(self, function, *args, **options)
        finally:
            stop = time()
            if method == "acquire":
                holding[key, id(owner)] = stop
            if stop - start > LEAST_S and method != "release":
                note(start, stop, key, kind, owner)

    undo_sync, undo_sizeof = (
        replace(SyncMethodMixin, "sync", sync),
        replace(worker_module, "sizeof", sizeof),
    )

    def undo() -> None:
        undo_sync()
        undo_sizeof()

    return undo
