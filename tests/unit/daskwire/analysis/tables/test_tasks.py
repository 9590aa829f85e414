"""Outcomes of tasks: cancelled ones, and those of restarted workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from daskwire import Capture, summarise

from tests.unit.daskwire.build import HELLO, Talk, g3

Read = Callable[..., Capture]


def stream(port: int = 40000, **options: Any) -> Talk:
    """A worker's connection with the scheduler."""
    talk = Talk(client=("10.0.0.2", port), **options).open().say(0, g3(HELLO)).say(1, g3(HELLO))
    return talk.say(0, g3({"op": "register-worker", "address": f"tcp://10.0.0.2:{port + 1}", "name": "w"}))


def send(talk: Talk, *keys: str) -> None:
    talk.say(1, g3([{"op": "compute-task", "key": key} for key in keys]))


def finish(talk: Talk, key: str) -> None:
    talk.say(0, g3([{"op": "task-finished", "key": key, "nbytes": 8}]))


def outcomes(capture: Capture) -> list[tuple[str, str]]:
    table = capture.table("tasks")
    return list(zip(table["key"], table["outcome"], strict=True))


@pytest.mark.parametrize("cancel", [
    {"op": "free-keys", "keys": ["b", "c"]},
    {"op": "cancel-compute", "key": "b"},
    {"op": "release-task", "key": "b"},
])  # fmt: skip
def test_task_released_before_its_report_is_cancelled(read: Read, cancel: dict[str, Any]) -> None:
    talk = stream()
    send(talk, "a", "b")
    finish(talk, "a")
    talk.say(1, g3([cancel, {"op": "free-keys", "keys": ["a"]}]))
    capture = read(talk.packets)
    assert outcomes(capture) == [("a", "finished"), ("b", "cancelled")]
    sent_ns, freed = (capture.table("tasks")[name][1] for name in ("sent_ns", "finished_ns"))
    assert freed > sent_ns


def test_cancelled_task_may_still_finish(read: Read) -> None:
    talk = stream()
    send(talk, "a")
    talk.say(1, g3([{"op": "free-keys", "keys": ["a"]}]))
    finish(talk, "a")
    assert outcomes(read(talk.packets)) == [("a", "finished")]


def test_cancelled_task_may_be_sent_again(read: Read) -> None:
    talk = stream()
    send(talk, "a")
    talk.say(1, g3([{"op": "free-keys", "keys": ["a"]}]))
    send(talk, "a")
    finish(talk, "a")
    assert outcomes(read(talk.packets)) == [("a", "cancelled"), ("a", "finished")]


def test_report_after_a_restart_belongs_to_the_new_worker(read: Read) -> None:
    """Both processes have the same name; a report belongs to its connection."""
    first = stream()
    send(first, "a")
    second = stream(41000, time_ns=first.time_ns)
    send(second, "a")
    finish(second, "a")
    capture = read(first.packets + second.packets)
    assert outcomes(capture) == [("a", "open"), ("a", "finished")]
    assert capture.table("tasks")["worker"] == ["w", "w"]


@pytest.mark.parametrize("number", [5, 50])
def test_summary_and_problems_decode_no_report_again(
    number: int, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    for key in range(number):
        talk.say(1, g3([{"op": "compute-task", "key": f"k-{key}"}]))
        steps = [{"action": "compute", "start": 1.7e9, "stop": 1.7e9 + 1}]
        talk.say(0, g3([{"op": "task-finished", "key": f"k-{key}", "startstops": steps, "thread": 1}]))
        talk.say(1, g3([{"op": "free-keys", "keys": [f"k-{key}"]}]))
    capture, decoded = read(talk.packets), []

    def unpack(body: bytes) -> dict[str, object]:
        decoded.append(body)
        return {}

    monkeypatch.setattr("daskwire.decoder.dask.messages.unpack", unpack)
    assert summarise(capture)["times_ms"]["compute"]["n"] == number
    capture.table("problems")
    assert decoded == []
