"""Workers that announce another network."""

from __future__ import annotations

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, only
from tests.unit.daskwire.build import g3


def test_worker_that_announces_another_network(read: Read) -> None:
    cluster = Cluster()
    cluster.work(without="w2")
    talk = cluster.streams["w2"]
    talk.say(0, g3({"op": "heartbeat_worker", "address": "tcp://172.16.0.3:3333", "name": "w2"}))
    talk.say(1, g3({"status": "OK"}))
    data = cluster.open("10.0.0.2", 47000, ("172.16.0.3", 3333), time_ns=cluster.at(2))
    data.say(0, g3({"op": "get_data", "keys": ["x"], "who": "tcp://10.0.0.2:3333"}))
    data.say(1, g3({"status": "OK"}))
    row = only(read(cluster.packets), "wrong interface")
    assert (
        row["source"] == "w2"
        and "announces 172.16.0.3 but reaches the scheduler from 10.0.0.3" in row["what"]
    )
