"""Schedulers that answer late."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.build import ACK, PSH, g3
from tests.unit.daskwire.problems.cluster import WORKERS, Cluster, Read, findings, only


def test_scheduler_that_answers_late(read: Read) -> None:
    cluster = Cluster()
    cluster.work(4.0)
    for name in WORKERS:
        cluster.beat(name, 5.0, answer_s=1.4)
    row = only(read(cluster.packets), "slow scheduler loop")
    assert (row["source"], row["number"]) == ("scheduler", 3) and row["cost_s"] == pytest.approx(
        1.4, abs=0.01
    )
    assert row["filter"].startswith("((ip.addr == 10.0.0.1 && ip.addr == 10.0.0.2) || ")


def test_answers_that_the_network_delays_are_not_the_loop(read: Read) -> None:
    """The scheduler's kernel acknowledges a heartbeat at once, so a late ACK waited in a queue."""
    cluster = Cluster()
    cluster.work(4.0)
    for name in WORKERS:
        talk = cluster.streams[name]
        talk.time_ns = cluster.at(5.0)
        beat = {"op": "heartbeat_worker", "address": f"tcp://{WORKERS[name]}:3333", "name": name}
        talk.add(0, ACK | PSH, g3(beat))
        talk.sent[0] += len(g3(beat))
        talk.time_ns = cluster.at(6.4)
        talk.add(1, ACK)
        talk.say(1, g3({"status": "OK", "heartbeat-interval": 0.5}))
    assert findings(read(cluster.packets)) == []
