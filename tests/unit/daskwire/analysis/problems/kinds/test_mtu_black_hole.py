"""Large packets that vanish."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, retransmitted, transfer
from tests.unit.daskwire.build import g3


def test_mtu_black_hole(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    retransmitted(cluster.fetch("w1", "w2", 1.0), 1, bytes(1448), (0.2, 0.4, 0.8, 1.6))
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"], row["destination"]) == ("MTU black hole", "w1", "w2")
    assert "segments of 1,448 bytes were retransmitted 4 times" in row["what"]
    assert row["cost_s"] == pytest.approx(3.0, abs=0.01) and "tcp.len >= 400" in row["filter"]


def test_mtu_black_hole_that_begins_later(read: Read) -> None:
    """Large segments arrived before, small ones still do."""
    cluster = Cluster()
    cluster.work()
    transfer(cluster.fetch("w1", "w2", 1.0), 100_000)
    retransmitted(cluster.fetch("w1", "w2", 2.0), 1, bytes(1448), (0.2, 0.4, 0.8, 1.6))
    cluster.fetch("w1", "w2", 4.0).say(1, g3({"status": "busy"}))
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"], row["destination"]) == ("MTU black hole", "w1", "w2")


def test_mtu_black_hole_that_begins_later_and_stops_all(read: Read) -> None:
    """The header passes right before the body vanishes; its peer does not ask again."""
    cluster = Cluster()
    cluster.work()
    transfer(cluster.fetch("w1", "w2", 1.0), 100_000)
    talk = cluster.fetch("w1", "w2", 3.0).say(1, g3({"status": "OK"}))
    retransmitted(talk, 1, bytes(1448), (0.2, 0.4, 0.8, 1.6))
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"], row["destination"]) == ("MTU black hole", "w1", "w2")
