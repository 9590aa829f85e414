"""Hosts that no longer answer."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.build import g3
from tests.unit.daskwire.problems.cluster import Cluster, Read, findings, retransmitted


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
