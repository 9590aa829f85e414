"""Schedulers that answer late."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, WORKERS, Cluster, Read, findings, only
from tests.unit.daskwire.build import ACK, FIN, PSH, g3


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


@pytest.mark.parametrize("is_restart", [True, False])
def test_late_answers_at_a_second_start_up_are_no_problem(read: Read, is_restart: bool) -> None:
    """After a shutdown, workers register again and import libraries again."""
    cluster = Cluster()
    cluster.work(3.0)
    cluster.client.time_ns = cluster.at(4.0)
    cluster.client.add(0, FIN | ACK)
    again = cluster.open("10.0.0.9", 41000, time_ns=cluster.at(6.0))
    again.say(0, g3({"op": "register-client", "client": "Client-2"})).say(1, g3([{"op": "stream-start"}]))
    if is_restart:
        talk = cluster.open("10.0.0.2", 42000, time_ns=cluster.at(6.5))
        own = {"address": "tcp://10.0.0.2:3333", "name": "w1"}
        talk.say(0, g3({"op": "register-worker", "reply": False, **own})).say(1, g3({"status": "OK"}))
    for name in WORKERS:
        cluster.beat(name, 7.0, answer_s=1.4)
    again.time_ns = cluster.at(7) + 2 * SECOND_NS
    again.say(1, g3([{"op": "key-in-memory", "key": "x", "type": "int"}]))
    cluster.beat("w2", 10.0)
    problems = [row["problem"] for row in findings(read(cluster.packets))]
    assert ("slow scheduler loop" in problems) != is_restart
