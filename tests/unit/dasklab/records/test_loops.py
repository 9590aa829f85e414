"""When an event loop is busy."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import sys
import threading
import time
from selectors import EVENT_READ, SelectorKey

import pytest
from dasklab.records.recorder.layout import COMMON
from dasklab.records.recorder.loops import LoopWatch
from dasklab.records.recorder.scheduler import steals
from dasklab.records.recorder.store import Log
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream

from tests.waiting import PATIENCE_S


def busy_log() -> Log:
    return Log(COMMON["busy"], 100)


def taken(log: Log) -> list[tuple[float, float]]:
    rows = [(start, stop) for start, stop, _ in log.rows]
    log.rows.clear()
    return rows


WAKEUP = SelectorKey(fileobj=3, fd=3, events=EVENT_READ, data=None)  # of no connection


class FakeLoop:
    """An event loop whose selector takes ``takes`` seconds."""

    def __init__(self, clock: list[float]) -> None:
        self._selector = self
        self.clock = clock
        self.takes = 0.0
        self.ready: list[tuple[SelectorKey, int]] = []

    def select(self, timeout: float | None) -> list[tuple[SelectorKey, int]]:
        self.clock[0] += self.takes
        return self.ready


def test_a_loop_is_busy_between_waits_and_when_a_wait_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    # Not those of the module: a class that an earlier test unpickled by value has globals of its own.
    for method in (LoopWatch.__init__, LoopWatch.watched):
        monkeypatch.setitem(method.__globals__, "time", lambda: clock[0])
    fake = FakeLoop(clock)
    log = busy_log()
    LoopWatch(fake, {}, {1: log})
    wait = fake._selector.select

    def work(seconds: float, waits: float, timeout: float | None, ready: bool) -> None:
        clock[0] += seconds
        fake.takes, fake.ready = waits, [(WAKEUP, EVENT_READ)] if ready else []
        wait(timeout)

    work(0.010, 0.500, 1.0, ready=True)  # 10 ms of work, then a message after half a second
    work(0.002, 0.00001, 0.0, ready=False)  # a look that does not wait ends nothing
    work(0.003, 0.120, 0.020, ready=False)  # a wait of 20 ms that took 120: something held it
    work(0.001, 0.050, None, ready=True)
    intervals = [(round(start - 100, 6), round(stop - 100, 6)) for start, stop in taken(log)]
    assert intervals == [(0.0, 0.01), (0.51, 0.51501), (0.53501, 0.63601)]


def test_a_loop_was_busy_since_data_came_that_it_was_kept_from_taking() -> None:
    """Another thread holds the interpreter while data comes: the kernel knows since when it lies there."""
    interval = sys.getswitchinterval()
    libc = ctypes.PyDLL(None)  # calls into it do not let go of the interpreter
    listening = socket.create_server(("127.0.0.1", 0))
    far = socket.create_connection(listening.getsockname())
    near, _ = listening.accept()
    intervals: list[tuple[float, float]] = []
    log = busy_log()
    waiting = threading.Event()

    async def serve() -> None:
        stream, io_loop = IOStream(near), IOLoop.current()
        LoopWatch(asyncio.get_running_loop(), io_loop.handlers, {1: log})
        io_loop.call_later(0.05, waiting.set)
        await stream.read_bytes(1)
        await asyncio.sleep(0.02)  # a wait, which ends the busy interval
        intervals.extend(taken(log))
        stream.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    waiting.wait(PATIENCE_S)
    time.sleep(0.05)  # it waits for data now
    held = time.time()
    sys.setswitchinterval(10)  # the loop cannot take the interpreter between the two calls
    try:
        libc.send(far.fileno(), b"x", 1, 0)
        sent = time.time()
        libc.usleep(100_000)
    finally:
        sys.setswitchinterval(interval)
    thread.join(10)
    far.close()
    listening.close()
    assert any(start < sent + 0.05 and stop > sent + 0.1 for start, stop in intervals)
    assert all(stop - start < 0.1 or start > held - 0.01 for start, stop in intervals)


def test_steals_are_told_one_by_one() -> None:
    request = ("request", [(1.0, 2, "y", 0.1, "v", 0, "t", 0), (1.0, 2, "z", 0.1, "v", 0, "t", 0)])
    assert [row[1] for row in steals(request)] == ["y", "z"]
    assert steals(("confirm", "y", "ready", "v", "t", "id")) == [("confirm", "y", "v", "t")]
    assert steals(("stale-response", "y")) == [("stale-response", "", "", "")]
