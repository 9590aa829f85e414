"""Hosts that no longer answer."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, only, retransmitted
from tests.unit.daskwire.build import ACK, FIN, RST, g3


def test_half_open_connection(read: Read) -> None:
    """The peer's host sends nothing any more."""
    cluster = Cluster()
    cluster.work(without="w2")
    cluster.beat("w2", 0.0)
    talk = cluster.streams["w2"]
    talk.time_ns = cluster.at(1)
    retransmitted(talk, 1, g3([{"op": "compute-task", "key": "x"}]), (0.2, 0.4, 0.8, 1.6, 3.2))
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"]) == ("half-open connection", "w2")
    assert row["cost_s"] == pytest.approx(6.2, abs=0.01)


@pytest.mark.parametrize("end", [RST | ACK, FIN | ACK])
def test_keepalives_and_end_of_the_dead_peer_are_no_answers(read: Read, end: int) -> None:
    """A firewall forgot the connection: the peer is alive, but receives nothing either."""
    cluster = Cluster()
    cluster.work(without="w2")
    cluster.beat("w2", 0.0)
    talk = cluster.streams["w2"]
    talk.time_ns = cluster.at(1)
    retransmitted(talk, 1, g3([{"op": "compute-task", "key": "x"}]), (0.2, 0.4, 0.8, 1.6, 3.2))
    for at_s in (2.0, 3.0):
        talk.time_ns = cluster.at(at_s)
        talk.add(0, ACK, seq=talk.isn[0] + talk.sent[0])
    talk.time_ns = cluster.at(8)
    talk.add(0, end)
    capture = read(cluster.packets)
    assert [(row["problem"], row["source"]) for row in findings(capture)] == [("half-open connection", "w2")]
    assert "half-open connection of w2" in only(capture, "lost worker", "note")["what"]


def test_hosts_that_do_not_answer_each_other_are_one_problem(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    for source, destination in (("w1", "w2"), ("w2", "w1")):
        talk = cluster.fetch(source, destination, 1.0)
        retransmitted(talk, 1, g3({"status": "OK"}), (0.2, 0.4, 0.8, 1.6, 3.2))
    row = only(read(cluster.packets), "half-open connection")
    assert {row["source"], row["destination"]} == {"w1", "w2"} and row["number"] == 2
    assert "in the other direction: no longer answers" in row["what"]
