"""Connections of which one direction is not in the capture."""

from __future__ import annotations

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, only
from tests.unit.daskwire.build import g3


def test_one_direction_of_some_connections_is_an_asymmetric_path(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    for _ in range(4):
        talk = cluster.fetch("w1", "w2", 2.0)
        talk.say(1, g3({"status": "OK"}, bytes(30_000)))
        talk.packets = [p for p in talk.packets if p[1][26:30] == bytes([10, 0, 0, 3])]
    row = findings(read(cluster.packets))[0]
    assert (row["problem"], row["source"], row["destination"]) == ("asymmetric path", "w1", "w2")
    assert only(read(cluster.packets), "incomplete capture", "note")
