"""Connects that only a later SYN achieves."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, Cluster, Read, connect, findings, only
from tests.unit.daskwire.build import ACK, SYN, Talk


def test_a_connect_that_only_a_later_syn_achieves(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    connect(cluster, 43000, 3.0, SYN | ACK, attempts=3)
    row = only(read(cluster.packets), "unanswered connects")
    assert row["what"].endswith("had no answer for 2.0 s: 1 connection, 3 SYNs")
    assert row["cost_s"] == pytest.approx(2.0, abs=0.1)


def late(cluster: Cluster, port: int, time_ns: int, attempts: int) -> None:
    """Connect with the scheduler; only the last SYN has an answer."""
    talk = Talk(client=("10.0.0.9", port), time_ns=time_ns)
    for _ in range(attempts):
        talk.add(0, SYN, seq=talk.isn[0])
        talk.time_ns += SECOND_NS
    talk.time_ns -= SECOND_NS
    talk.add(1, SYN | ACK, seq=talk.isn[1])
    talk.add(0, ACK)
    cluster.talks.append(talk)


def test_what_happens_after_startup_counts_though_it_began_before(read: Read) -> None:
    """A connect at start-up, before its target accepted any, exempts itself and no other one."""
    cluster = Cluster()
    cluster.work()
    late(cluster, 50000, cluster.streams["w1"].packets[0][0] - 4 * SECOND_NS, 3)
    for number in range(3):
        late(cluster, 50001 + number, cluster.at(2.0 + 2 * number), 2)
    capture = read(cluster.packets)
    row = only(capture, "unanswered connects")
    assert row["number"] == 3 and row["cost_s"] == pytest.approx(3.0, abs=0.01)
    assert only(capture, "unanswered connects", "note")["number"] == 1


def test_connects_of_several_hosts_are_one_problem(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    for address in ("10.0.0.2", "10.0.0.4", "10.0.0.9"):
        talk = Talk(client=(address, 50000), server=("10.0.0.3", 3333), time_ns=cluster.at(3.0))
        for _ in range(3):
            talk.add(0, SYN, seq=7)
            talk.time_ns += SECOND_NS
        cluster.talks.append(talk)
    row = only(read(cluster.packets), "unanswered connects")
    assert (row["source"], row["destination"], row["number"]) == ("w2", "", 3)
    assert "port 3333 from client, w1, w3 had no answer: 3 connections, 9 SYNs" in row["what"]


def test_single_syn_to_a_scheduler_that_never_answers_is_a_problem(read: Read) -> None:
    talk = Talk()
    talk.add(0, SYN, seq=7)
    assert [row["problem"] for row in findings(read(talk.packets))] == ["unanswered connects"]
