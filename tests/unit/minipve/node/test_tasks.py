"""Tasks: UPIDs, logs, exit statuses, stopping, tasks of a dead endpoint."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from minipve.base.errors import ApiError, MachineError, denied
from minipve.node.tasks import Task, Tasks, Work, parse_upid

from tests.waiting import PATIENCE_S


@pytest.fixture
def tasks(tmp_path: Path) -> Tasks:
    return Tasks(tmp_path, "pve")


def _finished(tasks: Tasks, work: Work) -> tuple[str, list[str]]:
    upid = tasks.start("qmtest", "100", "a@pve!tt", work)
    deadline = time.monotonic() + PATIENCE_S
    while tasks.status(upid)["status"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.005)
    lines, total = tasks.log(upid, 0, 0)
    assert total == len(lines)
    return tasks.status(upid)["exitstatus"], [line["t"] for line in lines]


def _raise(error: Exception) -> Work:
    def work(task: Task) -> None:
        task.log("begun")
        raise error

    return work


def test_success_and_warnings(tasks: Tasks) -> None:
    assert _finished(tasks, lambda task: task.log("a\n")) == ("OK", ["a", "TASK OK"])
    warned = _finished(tasks, lambda task: task.log("WARN: x"))
    assert warned == ("WARNINGS: 1", ["WARN: x", "TASK WARNINGS: 1"])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MachineError("bridge 'x' does not exist"), "bridge 'x' does not exist"),
        (ApiError("VM is locked (backup)"), "VM is locked (backup)"),
        (denied("/vms/1, VM.Audit"), "403 Permission check failed (/vms/1, VM.Audit)"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (ApiError("two\nlines"), "two lines"),
    ],
)
def test_failures_are_logged(tasks: Tasks, error: Exception, status: str) -> None:
    assert _finished(tasks, _raise(error)) == (status, ["begun", f"TASK ERROR: {status}"])


def test_programming_error_ends_the_task(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type.__name__))
    assert _finished(tasks, _raise(ZeroDivisionError("ours")))[0] == "worker died"
    deadline = time.monotonic() + PATIENCE_S
    while not seen:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert seen == ["ZeroDivisionError"]


def test_fields_of_a_upid(tasks: Tasks) -> None:
    fields = tasks.status(tasks.start("qmtest", "100", "a@pve!tt", lambda task: None))
    assert (fields["node"], fields["type"], fields["id"]) == ("pve", "qmtest", "100")
    assert (fields["user"], fields["tokenid"]) == ("a@pve", "tt")
    assert abs(fields["starttime"] - time.time()) < 5
    assert fields["upid"].count(":") == 8


@pytest.mark.parametrize("upid", ["", "UPID:", "UPID:pve:1:2:3:a:b:c:", "../etc/passwd"])
def test_malformed_upids(upid: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_upid(upid)
    assert refused.value.errors == {"upid": "unable to parse worker upid"}


def test_stopping(tasks: Tasks) -> None:
    begun = threading.Event()

    def work(task: Task) -> None:
        begun.set()
        task.wait(PATIENCE_S)

    upid = tasks.start("qmtest", "100", "a@pve", work)
    begun.wait(PATIENCE_S)
    assert tasks.running("qmtest", "100") == [upid]
    assert tasks.overview()[0]["status"] == "RUNNING"
    tasks.interrupt(upid)
    tasks.settle(5)
    assert tasks.status(upid)["exitstatus"] == "received interrupt"
    tasks.interrupt(upid)


def test_task_of_a_dead_endpoint_has_an_unexpected_status(tasks: Tasks, tmp_path: Path) -> None:
    upid = "UPID:pve:0000009A:000549BF:6B00FC86:qmclone:100:a@pve:"
    (tmp_path / upid).write_text("create full clone\n")
    assert Tasks(tmp_path, "pve").status(upid)["exitstatus"] == "unexpected status"


def test_concurrent_tasks_have_unique_upids(tasks: Tasks) -> None:
    upids = [tasks.start("qmtest", str(n % 2), "a@pve", lambda task: task.log("x")) for n in range(50)]
    assert len(set(upids)) == 50
    tasks.settle(5)
    assert len(tasks.overview()) == 50


def test_tasks_of_the_same_tick_are_listed_in_order(tasks: Tasks) -> None:
    upids = [tasks.start("qmtest", "100", "a@pve", lambda task: None) for _ in range(30)]
    tasks.settle(5)
    assert [row["upid"] for row in tasks.overview()] == upids[::-1]
