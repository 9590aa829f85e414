"""Late heartbeats of workers that send other messages."""

from __future__ import annotations

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, only
from tests.unit.daskwire.build import g3


def test_silent_worker_is_blocked_and_a_talking_one_is_late(read: Read) -> None:
    cluster = Cluster()
    cluster.work(without="w2")
    for at_s in (0.0, 3.0, 6.0, 9.0):
        cluster.beat("w2", at_s)
        for extra in (0.6, 1.2, 1.8, 2.4):
            cluster.streams["w2"].time_ns = cluster.at(at_s + extra)
            cluster.streams["w2"].say(0, g3([{"op": "add-keys", "keys": ["x"]}]))
    late = only(read(cluster.packets), "late heartbeats")
    assert (late["source"], late["number"]) == ("w2", 4) and "up to 3,000 ms" in late["what"]


def test_a_heartbeat_that_never_comes_is_late(read: Read) -> None:
    cluster = Cluster()
    cluster.work(without="w2")
    cluster.beat("w2", 0.0)
    for second in range(1, 9):
        cluster.streams["w2"].time_ns = cluster.at(second)
        cluster.streams["w2"].say(0, g3([{"op": "add-keys", "keys": ["x"]}]))
    late = only(read(cluster.packets), "late heartbeats")
    assert (late["source"], late["number"]) == ("w2", 1) and "up to 8,0" in late["what"]
