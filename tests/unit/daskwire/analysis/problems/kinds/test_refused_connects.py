"""Connects that are refused."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, Cluster, Read, connect, findings, only
from tests.unit.daskwire.build import ACK, FIN, RST, SYN, Talk


def test_refused_and_unanswered_connects(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    for number in range(3):
        connect(cluster, 42000 + number, 2.0 + number, RST | ACK)
    connect(cluster, 43000, 3.0, attempts=4)
    capture = read(cluster.packets)
    refused, silent = only(capture, "refused connects"), only(capture, "unanswered connects")
    assert refused["what"] == "connecting to 10.0.0.3 port 9999 from w1 was refused: 3 connections, 3 SYNs"
    assert (refused["source"], refused["destination"]) == ("w2", "")
    assert refused["cost_s"] == pytest.approx(7.5, abs=0.2)  # until the end
    assert silent["what"].endswith("had no answer: 1 connection, 4 SYNs") and silent["source"] == "w1"


def test_connect_refused_at_start_up_is_a_note(read: Read) -> None:
    cluster = Cluster()
    early = Talk(client=("10.0.0.2", 39999), time_ns=cluster.streams["w1"].packets[0][0] - 5 * SECOND_NS)
    early.add(0, SYN, seq=7)
    early.add(1, RST | ACK, seq=0)
    cluster.talks.append(early)
    cluster.work()
    capture = read(cluster.packets)
    assert findings(capture) == [] and only(capture, "refused connects", "note")["number"] == 1


@pytest.mark.parametrize("has_left", [False, True])
def test_connect_refused_after_shutdown_is_a_note(read: Read, has_left: bool) -> None:
    """Without its client a cluster shuts down with its last message; with it, it is still needed."""
    cluster = Cluster()
    cluster.work(4.0)
    if has_left:
        cluster.client.time_ns = cluster.at(4)
        cluster.client.add(0, FIN | ACK)
    for at_s in (6.0, 8.0):
        connect(cluster, 42000 + int(at_s), at_s, RST | ACK)
    row = only(read(cluster.packets), "refused connects", "note" if has_left else "problem")
    assert row["number"] == 2
