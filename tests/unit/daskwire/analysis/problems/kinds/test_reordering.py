"""Packets that overtake each other."""

from __future__ import annotations

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, only
from tests.unit.daskwire.build import ACK


def test_reordering_is_not_loss(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    begin, data = talk.isn[1] + 1, bytes(1448)
    base = begin + talk.sent[1]
    order = [n + (1 if n % 20 == 0 else -1 if n % 20 == 1 else 0) for n in range(600)]
    for number in order:
        talk.add(1, ACK, data, seq=base + number * 1448, identification=number + 1)
    row = only(read(cluster.packets), "reordering")
    assert (row["source"], row["destination"], row["number"]) == ("w1", "w2", 30)
    assert {row["problem"] for row in findings(read(cluster.packets))} == {"reordering"}
