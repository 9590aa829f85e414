"""Captures of real clusters of every generation, against what the nodes themselves counted."""

from __future__ import annotations

from collections import Counter

import pytest
from daskwire.decoder.dask.content import MessageKind

from tests.unit.daskwire.build import GOLDEN
from tests.unit.daskwire.conftest import golden_capture, golden_truth

SPOKEN = {"g1": "G1", "g2": "G2", "g3": "G3", "p2p": "G3", "tls": "G3", "ws": "G3"}
pytestmark = pytest.mark.parametrize("name", GOLDEN)


def test_all_generations_and_transports_are_there(name: str) -> None:
    assert name.split("-")[0] in SPOKEN
    assert {n.split("-")[0] for n in GOLDEN} == set(SPOKEN)


def test_ops_match_the_counts_of_each_node(name: str) -> None:
    capture, output = golden_capture(name), golden_truth(name)
    table = capture.table("ops")
    actual: dict[str, Counter[str]] = {node: Counter() for node in output}
    for source, op in zip(table["source"], table["op"], strict=True):
        actual[source][op] += 1
    assert actual == {node: Counter(truth["ops"]) for node, truth in output.items()}


def test_messages_match_the_counts_of_each_node(name: str) -> None:
    capture, output = golden_capture(name), golden_truth(name)
    actual = Counter(capture.table("messages")["source"])
    assert actual == {node: truth["messages"] for node, truth in output.items()}


def test_batches_match_the_counters_of_batched_send(name: str) -> None:
    """BatchedSend.message_count counts ops, batch_count the writes they went out in."""
    capture, output = golden_capture(name), golden_truth(name)
    table = capture.table("messages")
    for node, truth in output.items():
        if node.startswith("worker"):
            batches = [
                (table["ops"][i])
                for i, kind in enumerate(table["kind"])
                if kind == "batch" and table["source"][i] == node
            ]
            ops, number = truth["batched"]["scheduler"]
            assert (sum(batches), len(batches)) == (ops, number)


def test_everything_is_decoded_and_answered(name: str) -> None:
    capture = golden_capture(name)
    actual = capture.messages
    assert capture.generation == SPOKEN[name.split("-")[0]]
    assert actual.complete.all()
    assert not set(actual.kind.tolist()) & {MessageKind.CUT, MessageKind.UNDECODED}
    unanswered = {
        op
        for message, op in zip(actual.op_message.tolist(), actual.op_name, strict=True)
        if actual.kind[message] == MessageKind.REQUEST and actual.answer[message] < 0
    }
    assert unanswered <= {
        "register-client",
        "heartbeat_worker",
    }  # the last may be on its way when the nodes stop
    flows = capture.table("flows")
    assert sum(flows["lost_bytes"]) == sum(flows["missing_bytes"]) == sum(flows["unframed_bytes"]) == 0


def test_tasks_are_sent_run_and_reported(name: str) -> None:
    tasks = golden_capture(name).table("tasks")
    assert set(tasks["outcome"]) - {"rescheduled", "stolen"} == {"finished"}
    assert all(sent_ns < done for sent_ns, done in zip(tasks["sent_ns"], tasks["finished_ns"], strict=True))
    truth = golden_truth(name)
    reported = sum(node["ops"].get("task-finished", 0) for node in truth.values())
    assert (
        tasks["outcome"].count("finished") == reported == len([s for s in tasks["start_s"] if s is not None])
    )


def test_transfers_describe_the_data(name: str) -> None:
    capture = golden_capture(name)
    transfers, parts = capture.table("transfers"), capture.table("parts")
    assert set(transfers["status"]) <= {"OK", "busy"}
    whole = [
        i
        for i, kind in enumerate(transfers["kind"])
        if kind == "get_data" and transfers["receive_ms"][i] is not None
    ]
    assert whole and all(transfers["payload_bytes"][i] <= transfers["bytes"][i] for i in whole)
    assert sum(parts["wire_bytes"]) == sum(transfers["payload_bytes"])
    if name.startswith("p2p"):
        assert "shuffle_receive" in transfers["kind"]
    else:
        arrays = [
            i for i, dtype in enumerate(parts["dtype"]) if dtype == "<f8" and " x " in parts["shape"][i]
        ]
        assert arrays
        for i in arrays:
            rows, columns = map(int, parts["shape"][i].split(" x "))
            assert parts["memory_bytes"][i] == rows * columns * 8
