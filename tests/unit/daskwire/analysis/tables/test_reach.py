"""Who announced what, and who could reach whom."""

from __future__ import annotations

from daskwire import rows

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, connect
from tests.unit.daskwire.build import ACK, FIN, RST, g3


def test_nodes_show_what_each_announced_and_how_it_left(read: Read) -> None:
    cluster = Cluster()
    cluster.work(2.0)
    cluster.client.time_ns = cluster.at(2.0)
    cluster.client.say(0, g3([{"op": "close-client"}])).add(0, FIN | ACK)
    cluster.streams["w2"].time_ns = cluster.at(3.0)
    cluster.streams["w2"].add(1, RST)
    table = {row["node"]: row for row in rows(read(cluster.packets).table("nodes"))}
    assert list(table) == ["scheduler", "w1", "w2", "w3", "client"]
    assert table["scheduler"]["announced"] == "10.0.0.1:8786"
    assert (table["w1"]["announced"], table["w1"]["source"]) == ("10.0.0.2:3333", "10.0.0.2")
    assert [table[name]["joined"] for name in ("w1", "client")] == ["yes", "yes"]
    assert [table[name]["left"] for name in ("w1", "w2", "client")] == [
        "",
        "reset by the scheduler",
        "said so",
    ]


def test_reach_counts_connects_by_their_success(read: Read) -> None:
    cluster = Cluster()
    cluster.fetch("w2", "w1", 1.0)
    connect(cluster, 42000, 2.0, RST | ACK)
    connect(cluster, 42001, 3.0, attempts=3)
    table = [row for row in rows(read(cluster.packets).table("reach")) if row["source"] == "w1"]
    columns = ("destination", "port", "connects", "answered", "refused", "unanswered")
    assert [tuple(row[name] for name in columns) for row in table] == [
        ("scheduler", 8786, 1, 1, 0, 0),
        ("w2", 3333, 1, 1, 0, 0),
        ("w2", 9999, 2, 0, 1, 1),
    ]
    assert table[0]["rtt_ms"] > 0 and table[2]["rtt_ms"] is None
