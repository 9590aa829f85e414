"""The study's packet counting, kept to show how far it is from messages."""

from __future__ import annotations

from collections.abc import Callable

from lab.wire import Capture
from lab.wire.study import packets_by_first_op
from tests.unit.wire.build import HELLO, Talk, g3
from tests.unit.wire.conftest import golden_capture


def test_a_batch_counts_once_and_a_continued_message_as_data(read: Callable[..., Capture]) -> None:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO)).say(0, g3({"op": "register-worker"}))
    talk.say(
        1, g3([{"op": "compute-task", "pad": "x" * 3000}, {"op": "compute-task"}, {"op": "steal-request"}])
    )
    table = packets_by_first_op(read(talk.packets))
    found = {(s, o): n for s, o, n in zip(table["source"], table["op"], table["packets"], strict=True)}
    assert found["scheduler", "compute-task"] == 2 and found["scheduler", "data"] == 2


def test_it_sees_fewer_ops_than_there_are() -> None:
    capture = golden_capture("g1-2.8.0")
    table = packets_by_first_op(capture)
    seen = sum(n for op, n in zip(table["op"], table["packets"], strict=True) if op == "compute-task")
    assert 0 < seen < capture.messages.op_name.count("compute-task")
    assert sum(table["packets"]) == sum(capture.table("packets")["data_packets"])
