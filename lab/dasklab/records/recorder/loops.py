"""When an event loop was busy."""

# mypy: disable-error-code="method-assign"
from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from selectors import EVENT_READ
from typing import Any

import distributed
from distributed.metrics import time

from dasklab.records.recorder.store import Log

PAUSE_S = 0.0001  # an event loop that waits for less than this is not idle
SHORT_S = 0.0001  # shorter busy intervals are not kept
LEAST_WAITED_S = 0.008  # two ticks of the kernel's clock, which measures how long data waited
INTERNET = (socket.AF_INET, socket.AF_INET6)
ESTABLISHED, LAST_DATA_AT = (
    1,
    52,
)  # in the kernel's struct tcp_info: a state, and tcpi_last_data_recv's offset


class LoopWatch:
    """When an event loop was busy: between two of its waits, or kept from running after a wait was over.

    A wait that lasts longer than requested (another thread held the interpreter, or other processes the CPU)
    counts as busy from when it should have ended. So does one that was ended by data that had come before.
    ``late`` is how much of an interval that was. Recorders whose processes share a loop share its watch.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, handlers: Mapping[int, Any]) -> None:
        self.logs: list[Log] = []
        self.begin, self.late = time(), 0.0
        self.handlers = handlers  # tornado's: for each file descriptor itself and its stream's method
        self.selector = getattr(loop, "_selector", None)  # uvloop has none
        if self.selector is not None:
            self.select, self.before = self.selector.select, vars(self.selector).get("select")
            self.selector.select = self.watched

    def watched(self, timeout: float | None = None) -> Any:
        """The selector's ``select``, between two stamps."""
        begin = time()
        ready = self.select(timeout)
        end = time()
        woken = timeout is None or (ready and timeout > 0)
        due = end if woken else begin + max(timeout or 0, 0)
        if woken and end - begin > LEAST_WAITED_S:
            due -= min(self._data_waited(ready), end - begin)
        if min(due, end) - begin > PAUSE_S:
            if begin - self.begin > SHORT_S:
                for log in self.logs:
                    log.add(self.begin, begin, self.late)
            self.late = end - due if end - due > PAUSE_S else 0.0
            self.begin = end - self.late
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

    def release(self) -> None:
        if self.selector is not None:
            own = vars(self.selector)  # the class's method lies below what is set on the instance
            if self.before is None:
                own.pop("select", None)
            else:
                own["select"] = self.before


def watch_loop(loop: Any, log: Log) -> Callable[[], None]:
    """Note in a log when tornado's loop is busy; return how to end that.

    All recorders of a process share one watch for each loop, however often their modules were unpickled.
    """
    watches: dict[int, LoopWatch] = vars(distributed).setdefault("_dasklab_watches", {})
    number = id(loop.asyncio_loop)
    if number not in watches:
        watches[number] = LoopWatch(loop.asyncio_loop, loop.handlers)
    watch = watches[number]
    watch.logs.append(log)

    def leave() -> None:
        watch.logs.remove(log)
        if not watch.logs:
            watch.release()
            watches.pop(number, None)

    return leave


def since_data(connection: socket.socket) -> float:
    """Return the seconds since a connection's last data came; its end is not data."""
    if connection.family not in INTERNET or not hasattr(socket, "TCP_INFO"):
        return 0.0
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    if not info or info[0] != ESTABLISHED:
        return 0.0
    return float(struct.unpack_from("I", info, LAST_DATA_AT)[0]) / 1000
