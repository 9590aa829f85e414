"""From records to tables: what is joined with what, where a key comes twice or a peer was busy."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import sys
import threading
import time
from selectors import EVENT_READ, SelectorKey
from typing import Any

import pandas as pd
import pytest
from dasklab.model.files import Sample
from dasklab.records.preload import BoundedLog, BusyLoop, _stacks, _steal
from dasklab.records.preloaded import other_form, tables
from dasklab.records.speedscope import speedscope
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream

from tests.waiting import PATIENCE_S

ONE, TWO = "tcp://10.0.0.1:1", "tcp://10.0.0.2:2"
SAMPLE = Sample(run=1, warmup=False, start=0.0, stop=20.0, duration_s=20.0, answer=1.0, ok=True)


def common() -> dict[str, Any]:
    about = {"form": 1, "now": 20.0, "loop": "asyncio", "lost": 0, "cpu": [1.0, 0.5]}
    return about | {"config": {"a": {"b": 1}}, "spells": [], "sent": [], "metrics": []}


def worker(**more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        name: [] for name in ("arrived", "done", "states", "delays", "fetches", "served")
    }
    return common() | empty | more


def taken() -> dict[str, Any]:
    """``y`` went to worker-1, was stolen by worker-2 and computed there, after ``x`` on worker-1."""
    scheduler = common() | {
        "workers": [[ONE, "worker-1", 2], [TWO, "worker-2", 1]],
        "tasks": [
            ["x", ONE, 7, 8, "int", "OK", [["compute", 2.0, 3.0]]],
            ["y", TWO, 9, 8, "int", "OK", [["disk-read", 5.0, 5.5], ["compute", 6.0, 7.0]]],
        ],
        "transitions": [
            ["x", "released", "waiting", "update-graph-1.0", 1.0],
            ["x", "waiting", "processing", "update-graph-1.0", 1.1],
            ["x", "processing", "memory", "task-finished-3.1", 3.4],
            ["y", "waiting", "processing", "task-finished-3.1", 3.5],
            ["y", "waiting", "processing", "steal-3.9", 4.0],
            ["y", "processing", "memory", "task-finished-7.1", 7.5],
        ],
        "sent": [[1.2, ONE, "x", "compute-task", 0.0], [3.6, ONE, "y", "compute-task", 1.205],
                 [4.1, TWO, "y", "compute-task", 0.0]],
        "load": [[2.0, ONE, 1, 0.5, 0]],
        "steals": [[4.0, "request", "y", ONE, TWO]],
        "bandwidth": 1e8,
        "bandwidth_workers": [[TWO, ONE, 5e7]],
    }  # fmt: skip
    one = worker(
        arrived=[["x", 1.3, []], ["y", 3.7, [["x", 8, [ONE]]]]],
        states=[["x", "ready", 1.4], ["x", "executing", 1.5], ["y", "ready", 3.8]],
        done=[["x", 3.1, "task-finished-3.1"]],
        sent=[[3.2, "", "x", "task-finished", 3.15]],
        served=[[4.4, 4.5, TWO, ["x"], 0.0], [4.8, 5.0, TWO, ["x"], 0.01]],
    )
    two = worker(
        arrived=[["y", 4.2, [["x", 8, [ONE]]]]],
        states=[["y", "ready", 5.6], ["y", "executing", 5.7]],
        done=[["y", 7.1, "task-finished-7.1"]],
        sent=[[7.2, "", "y", "task-finished", 0.0]],
        fetches=[[4.3, 4.6, ONE, ["x"], "busy", 0.0], [4.7, 5.4, ONE, ["x"], "OK", 0.02]],
    )
    return {"asked": 19.9, "answered": 20.1, "scheduler": scheduler, "workers": {ONE: one, TWO: two}}


@pytest.fixture
def found() -> dict[str, list[dict[str, Any]]]:
    return tables([None, taken()], [SAMPLE.model_copy(update={"run": 0}), SAMPLE])


def test_a_stolen_task_has_the_stages_of_where_it_ran(found: dict[str, list[dict[str, Any]]]) -> None:
    first, second = found["tasks"]
    assert second["worker"] == "worker-2"
    assert (second["decided_s"], second["sent_s"], second["arrived_s"]) == (4.0, 4.1, 4.2)
    assert (second["ready_s"], second["executing_s"], second["done_s"]) == (5.6, 5.7, 7.1)
    assert (second["trigger"], second["stimulus"], second["disk_s"]) == ("", "steal", 0.5)
    assert (first["trigger"], first["stimulus"]) == ("", "update-graph")
    assert (first["handled_s"], first["report_due_s"]) == (3.4, 3.15)


def test_the_trigger_is_whose_end_made_the_scheduler_choose() -> None:
    records = taken()
    del records["scheduler"]["transitions"][4]
    assert tables([records], [SAMPLE])["tasks"][1]["trigger"] == "x"


def test_fetches_find_their_answers_in_order(found: dict[str, list[dict[str, Any]]]) -> None:
    busy, brought = found["fetches"]
    assert (busy["status"], busy["serve_start_s"]) == ("busy", 4.4)
    assert (brought["sender"], brought["serve_start_s"], brought["serialise_s"]) == ("worker-1", 4.8, 0.01)


def test_addresses_have_names(found: dict[str, list[dict[str, Any]]]) -> None:
    assert found["steals"][0] | {"run": 1} == found["steals"][0]
    assert (found["steals"][0]["victim"], found["steals"][0]["thief"]) == ("worker-1", "worker-2")
    assert [row["bytes_per_s"] for row in found["bandwidths"]] == [1e8, 5e7]
    assert found["needs"][0]["holders"] == "worker-1"
    assert {row["run"] for name, rows in found.items() for row in rows if name != "config"} == {1}


def test_another_version_of_the_preload_is_noticed() -> None:
    assert not other_form([None, taken()])
    records = taken()
    records["scheduler"]["form"] = 0
    assert other_form([records])


def test_a_full_log_keeps_the_last_and_is_emptied_by_reading() -> None:
    log = BoundedLog()
    log.extend(range(5))
    assert log.take() == [0, 1, 2, 3, 4]
    assert not log


WAKEUP = SelectorKey(fileobj=3, fd=3, events=EVENT_READ, data=None)  # of no connection


class FakeLoop:
    """An event loop whose selector takes as long as it is told."""

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
    monkeypatch.setattr("dasklab.records.preload.time", lambda: clock[0])
    fake = FakeLoop(clock)
    loop = BusyLoop(fake, {})
    wait = fake._selector.select

    def work(seconds: float, waits: float, timeout: float | None, ready: bool) -> None:
        clock[0] += seconds
        fake.takes, fake.ready = waits, [(WAKEUP, EVENT_READ)] if ready else []
        wait(timeout)

    work(0.010, 0.500, 1.0, ready=True)  # 10 ms of work, then a message after half a second
    work(0.002, 0.00001, 0.0, ready=False)  # a look that does not wait ends nothing
    work(0.003, 0.120, 0.020, ready=False)  # a wait of 20 ms that took 120: something held it
    work(0.001, 0.050, None, ready=True)
    spells = [(round(start - 100, 6), round(stop - 100, 6)) for start, stop in loop.busy.take()]
    assert spells == [(0.0, 0.01), (0.51, 0.51501), (0.53501, 0.63601)]


def test_a_loop_was_busy_since_data_came_that_it_was_kept_from_taking() -> None:
    """Another thread holds the interpreter while data comes: the kernel knows since when it lies there."""
    interval = sys.getswitchinterval()
    libc = ctypes.PyDLL(None)  # calls into it do not let go of the interpreter
    listening = socket.create_server(("127.0.0.1", 0))
    far = socket.create_connection(listening.getsockname())
    near, _ = listening.accept()
    spells: list[tuple[float, float]] = []
    waiting = threading.Event()

    async def serve() -> None:
        stream, io_loop = IOStream(near), IOLoop.current()
        loop = BusyLoop(asyncio.get_running_loop(), io_loop.handlers)
        io_loop.call_later(0.05, waiting.set)
        await stream.read_bytes(1)
        await asyncio.sleep(0.02)  # a wait, which ends the spell
        spells.extend(loop.busy.take())
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
    assert any(start < sent + 0.05 and stop > sent + 0.1 for start, stop in spells)
    assert all(stop - start < 0.1 or start > held - 0.01 for start, stop in spells)


def test_steals_are_told_one_by_one() -> None:
    request = ("request", [(1.0, 2, "y", 0.1, "v", 0, "t", 0), (1.0, 2, "z", 0.1, "v", 0, "t", 0)])
    assert [row[2] for row in _steal(5.0, request)] == ["y", "z"]
    assert _steal(5.0, ("confirm", "y", "ready", "v", "t", "id")) == [(5.0, "confirm", "y", "v", "t")]
    assert _steal(5.0, ("stale-response", "y")) == [(5.0, "stale-response", "", "", "")]


def test_a_profile_is_a_file_for_speedscope() -> None:
    def node(name: str, line: int, count: int, *children: dict[str, Any]) -> dict[str, Any]:
        about = {"name": name, "filename": "/x/y z.py", "line_number": line}
        return {"count": count, "description": about, "children": dict(enumerate(children))}

    tree = node("root", 0, 10, node("run", 5, 10, node("add", 9, 4), node("<lambda> (1)", 7, 3)))
    stacks = list(_stacks(tree, []))
    run, add, small = "run (/x/y z.py:5)", "add (/x/y z.py:9)", "<lambda> (1) (/x/y z.py:7)"
    assert stacks == [([run, add], 4), ([run, small], 3), ([run], 3)]
    rows = [{"worker": "worker-1", "stack": stack, "seconds": n / 100} for stack, n in stacks]
    said = speedscope(pd.DataFrame([*rows, {"worker": "worker-2", "stack": [run], "seconds": 1.0}]), "trial")
    assert said["shared"]["frames"] == [
        {"name": "run", "file": "/x/y z.py", "line": 5},
        {"name": "add", "file": "/x/y z.py", "line": 9},
        {"name": "<lambda> (1)", "file": "/x/y z.py", "line": 7},
    ]
    first, second = said["profiles"]
    assert (first["samples"], first["weights"]) == ([[0, 1], [0, 2], [0]], [0.04, 0.03, 0.03])
    assert first["endValue"] == pytest.approx(0.1)
    assert (second["name"], second["samples"], second["unit"]) == ("worker-2", [[0]], "seconds")
