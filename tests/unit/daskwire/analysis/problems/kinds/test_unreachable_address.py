"""Workers that announce an address at which nobody reaches them."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, Cluster, Read, findings, only
from tests.unit.daskwire.build import SYN, Talk, g3


def announce(cluster: Cluster, source: str, announced: str) -> Talk:
    """Let a fourth worker join that announces another address."""
    talk = cluster.open(source, 40000, time_ns=cluster.at(0.0))
    talk.say(0, g3({"op": "register-worker", "reply": False, "address": announced, "name": "w4"}))
    return talk.say(1, g3({"status": "OK"}))


def wait_for_data(talk: Talk, keys: int) -> None:
    """Let the worker have tasks whose data it does not find."""
    talk.say(1, g3([{"op": "compute-task", "key": f"sum-{number}"} for number in range(keys)]))
    talk.say(0, g3([{"op": "request-refresh-who-has", "keys": ["x"]}]))


def test_loopback_address_is_named_with_what_waited_for_it(read: Read) -> None:
    cluster = Cluster()
    wait_for_data(announce(cluster, "10.0.0.5", "tcp://127.0.0.1:3333"), 2)
    cluster.work()
    row = only(read(cluster.packets), "unreachable address")
    assert row["source"] == "w4" and row["cost_s"] == pytest.approx(9.5, abs=0.6)
    assert row["what"] == (
        "w4 announces 127.0.0.1:3333 but reaches the scheduler from 10.0.0.5; no peer reached it, and workers"
        " asked 1 time where else data is"
    )


def test_failed_connects_to_the_announced_address_are_its_consequence(read: Read) -> None:
    cluster = Cluster()
    announce(cluster, "10.0.0.5", "tcp://172.17.0.2:3333")
    for number in range(4):
        talk = Talk(("10.0.0.2", 45000), ("172.17.0.2", 3333), time_ns=cluster.at(2.0) + number * SECOND_NS)
        talk.add(0, SYN, seq=7)
        cluster.talks.append(talk)
    cluster.work()
    capture = read(cluster.packets)
    assert [row["problem"] for row in findings(capture)] == ["unreachable address"]
    row = only(capture, "unreachable address")
    assert "1 connect of w1 to it failed, and none succeeded" in row["what"] and row["cost_s"] > 5
    assert "unanswered connects" in [row["problem"] for row in findings(capture, "note")]


@pytest.mark.parametrize("announced", ["tcp://127.0.0.1:3333", "tcp://172.17.0.2:3333"])
def test_address_that_nobody_needed_is_no_problem(read: Read, announced: str) -> None:
    cluster = Cluster()
    announce(cluster, "10.0.0.5", announced)
    cluster.work()
    assert findings(read(cluster.packets)) == []


def test_loopback_address_on_the_only_host_is_no_finding(read: Read) -> None:
    talk = Talk(("127.0.0.1", 40000), ("127.0.0.1", 8786)).open()
    talk.say(0, g3({"op": "register-worker", "reply": False, "address": "tcp://127.0.0.1:3333"}))
    wait_for_data(talk.say(1, g3({"status": "OK"})), 2)
    capture = read(talk.packets)
    assert "unreachable address" not in capture.table("problems")["problem"]
