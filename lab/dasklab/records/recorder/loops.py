"""When an event loop was busy."""

# mypy: disable-error-code="method-assign"
from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from selectors import EVENT_READ
from typing import Any

from distributed.metrics import time

from dasklab.records.recorder.patches import Undo, replace, share
from dasklab.records.recorder.store import Log

PAUSE_S = 0.0001  # an event loop that waits for less than this is not idle
SHORT_S = 0.0001  # shorter busy intervals are not kept
LEAST_WAITED_S = 0.008  # two ticks of the kernel's clock, which measures how long data waited
INTERNET = (socket.AF_INET, socket.AF_INET6)
# In the kernel's struct tcp_info: a state, and the offset of tcpi_last_data_recv.
ESTABLISHED, LAST_DATA_AT = 1, 52


class LoopWatch:
    """When an event loop was busy: between two of its waits, or kept from running after a wait was over.

    A wait that lasts longer than requested (another thread held the interpreter, or other processes the CPU)
    counts as busy from when it should have ended. So does one that was ended by data that had come before.
    ``late`` is how much of an interval that was. Recorders whose processes share a loop share its watch.

    Attributes:
        running_since: since when the loop runs without waiting; None while it waits.
        thread: the loop's; None until it has waited once.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, handlers: Mapping[int, Any], logs: Mapping[int, Log]
    ) -> None:
        self.logs = logs
        self.begin, self.late = time(), 0.0
        self.running_since: float | None = None
        self.thread: threading.Thread | None = None
        self.handlers = handlers  # tornado's: for each file descriptor itself and its stream's method
        self.release: Undo = lambda: None
        if (selector := getattr(loop, "_selector", None)) is not None:  # uvloop has none
            self.select = selector.select
            self.release = replace(selector, "select", self.watched)

    def watched(self, timeout: float | None = None) -> Any:
        """The selector's ``select``, between two stamps."""
        self.running_since = None
        begin = time()
        ready = self.select(timeout)
        end = time()
        woken = timeout is None or (ready and timeout > 0)
        due = end if woken else begin + max(timeout or 0, 0)
        if woken and end - begin > LEAST_WAITED_S:
            due -= min(self._data_waited(ready), end - begin)
        if min(due, end) - begin > PAUSE_S:
            if begin - self.begin > SHORT_S:
                for log in list(self.logs.values()):
                    log.add(self.begin, begin, self.late)
            self.late = end - due if end - due > PAUSE_S else 0.0
            self.begin = end - self.late
        self.thread = self.thread or threading.current_thread()
        self.running_since = self.begin + self.late
        return ready

    def _data_waited(self, ready: list[tuple[Any, int]]) -> float:
        """For how long the data that ended a wait had been in the kernel, if the kernel knows."""
        try:
            methods = [
                self.handlers.get(key.fd, (None, None))[1] for key, events in ready if events & EVENT_READ
            ]
            streams = [getattr(method, "__self__", None) for method in methods]
            sockets = [s for stream in streams if (s := getattr(stream, "socket", None))]
            longest = max(map(since_data, sockets), default=0.0)
        except (OSError, struct.error):
            return 0.0
        return longest if longest >= LEAST_WAITED_S else 0.0


def watch_loop(loop: Any, log: Log) -> Callable[[], None]:
    """Note in a log when tornado's loop is busy; return how to end that.

    All recorders of a process share one watch for each loop, however often their modules were unpickled.
    """

    def install(logs: dict[int, Log]) -> Undo:
        return LoopWatch(loop.asyncio_loop, loop.handlers, logs).release

    return share(f"_dasklab_watch_{id(loop.asyncio_loop)}", id(log), log, install)


def watch_of(loop: Any) -> LoopWatch | None:
    """Return the watch of tornado's loop, whichever copy of this module made it."""
    select = getattr(getattr(loop.asyncio_loop, "_selector", None), "select", None)
    watch: Any = getattr(select, "__self__", None)
    return watch if hasattr(watch, "running_since") else None


def since_data(connection: socket.socket) -> float:
    """Return the seconds since a connection's last data came; its end is not data."""
    if connection.family not in INTERNET or not hasattr(socket, "TCP_INFO"):
        return 0.0
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    if not info or info[0] != ESTABLISHED:
        return 0.0
    return float(struct.unpack_from("I", info, LAST_DATA_AT)[0]) / 1000
