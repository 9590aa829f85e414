"""Schedulers that vanish."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, only
from tests.unit.daskwire.build import ACK, FIN, RST, SYN, Talk, g3


def end(cluster: Cluster, at_s: float, who: int = 1) -> None:
    """Close all connections: the scheduler's side (1), or the side of its peers (0)."""
    for talk in cluster.talks:
        talk.time_ns = cluster.at(at_s)
        talk.add(who, FIN | ACK)


def knock(cluster: Cluster, at_s: float, answer: int) -> None:
    """Let the client try to connect again."""
    talk = Talk(("10.0.0.9", 50000 + len(cluster.talks)), time_ns=cluster.at(at_s))
    talk.add(0, SYN, seq=7)
    talk.add(1, answer, seq=0)
    cluster.talks.append(talk)


def test_killed_scheduler_whose_client_tries_to_connect_again(read: Read) -> None:
    cluster = Cluster()
    cluster.work(6.0)
    cluster.streams["w1"].say(1, g3([{"op": "compute-task", "key": "x"}]))
    end(cluster, 6.0)
    for at_s in range(7, 27):
        knock(cluster, at_s, RST | ACK)
    capture = read(cluster.packets)
    row = findings(capture)[0]
    assert (row["problem"], row["source"]) == ("lost scheduler", "scheduler")
    assert row["what"] == (
        "closed its connections with client, w1, w2, w3; 1 task had no result; 20 later connects failed"
    )
    assert row["cost_s"] >= 20
    assert "refused connects" not in [row["problem"] for row in findings(capture)]


@pytest.mark.parametrize(("task", "severity"), [(True, "problem"), (False, "note")])
def test_killed_scheduler_at_the_end_of_the_capture(read: Read, task: bool, severity: str) -> None:
    cluster = Cluster()
    cluster.work(6.0)
    if task:
        cluster.streams["w1"].say(1, g3([{"op": "compute-task", "key": "x"}]))
    end(cluster, 6.0)
    assert only(read(cluster.packets), "lost scheduler", severity)["cost_s"] < 0.5


@pytest.mark.parametrize("client", [True, False])
def test_scheduler_that_is_stopped_with_open_tasks(read: Read, client: bool) -> None:
    """If no client is there any more, nobody waits for tasks that a lost worker left."""
    cluster = Cluster()
    cluster.work(6.0)
    cluster.streams["w1"].say(1, g3([{"op": "compute-task", "key": "x"}]))
    if not client:
        cluster.client.time_ns = cluster.at(5.0)
        cluster.client.add(0, FIN | ACK)
    packets = cluster.client.packets
    if not client:
        cluster.talks.remove(cluster.client)
    end(cluster, 6.0)
    capture = read(sorted([*cluster.packets, *([] if client else packets)], key=lambda packet: packet[0]))
    assert only(capture, "lost scheduler", "problem" if client else "note")


def test_host_that_accepts_while_its_scheduler_ends(read: Read) -> None:
    cluster = Cluster()
    cluster.work(6.0)
    end(cluster, 6.0)
    knock(cluster, 6.0, SYN | ACK)
    for at_s in range(7, 17):
        knock(cluster, at_s, RST | ACK)
    row = only(read(cluster.packets), "lost scheduler")
    assert row["cost_s"] >= 10 and row["what"].endswith("10 later connects failed")


def test_client_that_tries_again_needs_its_scheduler(read: Read) -> None:
    """It has no task at that moment, and gives up at once."""
    cluster = Cluster()
    cluster.work(6.0)
    end(cluster, 6.0)
    knock(cluster, 6.1, RST | ACK)
    assert only(read(cluster.packets), "lost scheduler")["cost_s"] < 0.5


def test_scheduler_that_comes_back(read: Read) -> None:
    cluster = Cluster()
    cluster.work(6.0)
    end(cluster, 6.0)
    knock(cluster, 10.0, RST | ACK)
    knock(cluster, 12.0, SYN | ACK)
    row = only(read(cluster.packets), "lost scheduler")
    assert row["what"].endswith("it accepted connections again after 6.0 s")
    assert row["cost_s"] == pytest.approx(6.0, abs=0.1)  # the refused connect waited in that time


def test_host_that_sends_nothing_more(read: Read) -> None:
    cluster = Cluster()
    cluster.work(6.0)
    for name, talk in cluster.streams.items():
        for step in range(4):
            talk.time_ns = cluster.at(6.0 + step)
            talk.add(0, ACK, f"{name} {step}".encode())
    row = only(read(cluster.packets), "lost scheduler")
    assert row["what"].startswith("sent nothing more to client, w1, w2, w3")
    assert row["cost_s"] == pytest.approx(3.5, abs=0.6)


def test_answers_that_are_under_way_when_the_capture_ends(read: Read) -> None:
    cluster = Cluster()
    cluster.work(6.0)
    for talk in cluster.streams.values():
        talk.time_ns = cluster.at(6.0)
        talk.say(1, g3([{"op": "compute-task", "key": "x"}]))  # its ACK has no answer
    for talk in cluster.streams.values():
        talk.time_ns = cluster.at(6.1)
        talk.add(0, ACK, b"heartbeat")
    assert "lost scheduler" not in read(cluster.packets).table("problems")["problem"]


def test_cluster_that_stops_after_its_client_left_is_healthy(read: Read) -> None:
    cluster = Cluster()
    cluster.work(6.0)
    cluster.client.time_ns = cluster.at(6.0)
    cluster.client.say(0, g3([{"op": "close-client"}, {"op": "close-stream"}]))
    cluster.client.add(1, FIN | ACK)
    cluster.talks.remove(cluster.client)
    packets = cluster.client.packets
    end(cluster, 6.5)
    knock(cluster, 9.0, RST | ACK)
    capture = read(sorted([*packets, *cluster.packets], key=lambda packet: packet[0]))
    assert "lost scheduler" not in capture.table("problems")["problem"]


def test_peers_that_leave_first_lose_no_scheduler(read: Read) -> None:
    cluster = Cluster()
    cluster.work(6.0)
    end(cluster, 6.0, who=0)
    capture = read(cluster.packets)
    assert "lost scheduler" not in capture.table("problems")["problem"]


def test_tasks_of_a_worker_that_had_left_do_not_need_the_scheduler(read: Read) -> None:
    cluster = Cluster()
    cluster.work(4.0)
    cluster.streams["w1"].say(1, g3([{"op": "compute-task", "key": "x"}]))
    for talk, at_s in ((cluster.streams["w1"], 4.5), (cluster.client, 5.0)):
        talk.time_ns = cluster.at(at_s)
        talk.add(0, FIN | ACK)
    packets = cluster.streams["w1"].packets + cluster.client.packets
    cluster.talks = [talk for talk in cluster.talks if talk not in (cluster.streams["w1"], cluster.client)]
    end(cluster, 6.0)
    capture = read(sorted(cluster.packets + packets, key=lambda packet: packet[0]))
    assert "lost scheduler" not in capture.table("problems")["problem"]
