"""Resets of connections that are in use, and of others."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import (
    SECOND_NS,
    Cluster,
    Read,
    connect,
    findings,
    only,
    retransmitted,
)
from tests.unit.daskwire.build import ACK, FIN, RST, g3


def test_reset_with_an_outstanding_request(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    talk.time_ns += 2 * SECOND_NS
    talk.add(1, RST | ACK)
    row = only(read(cluster.packets), "mid-stream reset")
    assert (row["source"], row["destination"], row["number"]) == ("w1", "w2", 1)
    assert row["cost_s"] == pytest.approx(2.0, abs=0.01)


def reset_stream(cluster: Cluster, *messages: object) -> None:
    """Reset the connection between the scheduler and w2 a second after some messages."""
    cluster.work(without="w2")
    talk = cluster.streams["w2"]
    talk.time_ns = cluster.at(3)
    for message in messages:
        talk.say(1, g3([message]))
    talk.time_ns = cluster.at(4)
    talk.add(1, RST | ACK)


@pytest.mark.parametrize("tasks", [0, 2])
def test_reset_of_a_worker(read: Read, tasks: int) -> None:
    """Without tasks, nobody waits for it, but it is lost all the same."""
    cluster = Cluster()
    reset_stream(cluster, *({"op": "compute-task", "key": f"task-{key}"} for key in range(tasks)))
    row = only(read(cluster.packets), "mid-stream reset")
    assert (row["source"], row["destination"]) == ("scheduler", "w2")
    assert row["cost_s"] == pytest.approx(1.0 if tasks else 0.0, abs=0.01)


def test_reset_of_a_worker_that_was_told_to_close_is_a_note(read: Read) -> None:
    cluster = Cluster()
    reset_stream(cluster, {"op": "close"})
    capture = read(cluster.packets)
    assert findings(capture) == [] and only(capture, "mid-stream reset", "note")["destination"] == "w2"


def test_connects_to_a_worker_that_was_reset_are_its_consequence(read: Read) -> None:
    """A worker whose connection with the scheduler breaks ends, and its port is closed."""
    cluster = Cluster()
    reset_stream(cluster)
    connect(cluster, 42000, 4.1, RST | ACK)
    capture = read(cluster.packets)
    assert [row["problem"] for row in findings(capture)] == ["mid-stream reset"]
    assert only(capture, "refused connects", "note")["what"].endswith(
        "(a consequence of: mid-stream reset of scheduler to w2)"
    )


def test_reset_of_an_idle_connection_is_a_note(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    cluster.fetch("w1", "w2", 2.0).say(1, g3({"status": "OK"})).say(0, g3("OK")).add(0, RST | ACK)
    capture = read(cluster.packets)
    assert findings(capture) == [] and only(capture, "mid-stream reset", "note")["source"] == "w2"


@pytest.mark.parametrize("beats_until_s", [3.0, 10.0])
def test_reset_after_the_last_client_left_is_a_note(read: Read, beats_until_s: float) -> None:
    """The cluster is stopped then, whether or not a worker has sent a heartbeat since."""
    cluster = Cluster()
    cluster.work(beats_until_s)
    talk = cluster.fetch("w1", "w2", 2.0)
    cluster.client.time_ns = cluster.at(3.2)
    cluster.client.add(0, FIN | ACK)
    talk.time_ns = cluster.at(4)
    talk.add(0, RST | ACK)
    capture = read(cluster.packets)
    assert findings(capture) == [] and only(capture, "mid-stream reset", "note")["source"] == "w2"


@pytest.mark.parametrize(("first", "kind"), [("reset", "mid-stream reset"), ("outage", "")])
def test_time_outs_after_a_reset_are_its_consequence(read: Read, first: str, kind: str) -> None:
    """An outage that begins before the reset is not."""
    cluster = Cluster()
    cluster.work()
    reset = cluster.fetch("w1", "w2", 2.0 if first == "reset" else 3.0)
    reset.time_ns += SECOND_NS // 100
    reset.add(1, RST | ACK)
    talk = cluster.fetch("w1", "w2", 2.0)
    reply = g3({"status": "OK"})
    retransmitted(talk, 1, reply, (0.2, 0.4, 0.8))
    talk.sent[1] += len(reply)
    talk.add(0, ACK)
    problems = [row["problem"] for row in findings(read(cluster.packets))]
    assert problems == [kind] if kind else "retransmission time-outs" in problems


def test_reset_after_a_fin_ends_a_normal_close(read: Read) -> None:
    """TLS answers a FIN with an alert, and the socket that it reaches is closed."""
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    talk.add(0, FIN | ACK)
    talk.sent[0] += 1
    talk.say(1, b"alert").add(0, RST)
    capture = read(cluster.packets)
    assert findings(capture) == []
    assert "mid-stream reset" not in {row["problem"] for row in findings(capture, "note")}
