"""Links that carry less than others."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, only, transfer
from tests.unit.daskwire.build import g3


def test_slow_link_of_a_host(read: Read) -> None:
    """Data from w1 flows at 1448 bytes each millisecond, data of others hundred times as fast."""
    cluster = Cluster()
    cluster.work()
    for source, destination, step_ns in (
        ("w1", "w2", 1_000_000), ("w1", "w3", 1_000_000), ("w2", "w3", 10_000), ("w3", "w2", 10_000),
        ("w2", "w1", 10_000), ("w3", "w1", 10_000),
    ):  # fmt: skip
        transfer(cluster.fetch(source, destination, 1.0, step_ns=step_ns), 4_000_000)
    row = only(read(cluster.packets), "slow link")
    assert (row["source"], row["destination"], row["number"]) == ("w1", "", 2)
    assert "flows at 12 Mbit/s" in row["what"] and "other pairs reach 1.2 Gbit/s" in row["what"]
    assert row["cost_s"] == pytest.approx(5.5, abs=0.3)


def test_slow_process_is_not_a_slow_link(read: Read) -> None:
    """It sends bursts at full rate, with pauses."""
    cluster = Cluster()
    cluster.work()
    for source, destination in (("w1", "w2"), ("w2", "w3"), ("w3", "w2"), ("w3", "w1")):
        talk = cluster.fetch(source, destination, 1.0, step_ns=10_000)
        for _ in range(20):
            transfer(talk, 300_000)
            talk.time_ns += 40_000_000 if source == "w1" else 0
    assert "slow link" not in {row["problem"] for row in findings(read(cluster.packets))}


def test_many_small_messages_are_not_a_slow_link(read: Read) -> None:
    """Their sender sends each one whole, and then has no more to send for 5 ms."""
    cluster = Cluster()
    cluster.work()
    for source, destination in (("w2", "w3"), ("w3", "w2"), ("w3", "w1")):
        transfer(cluster.fetch(source, destination, 1.0, step_ns=10_000), 4_000_000)
    talk = cluster.fetch("w1", "w2", 1.0, step_ns=10_000)
    for _ in range(600):
        talk.say(1, g3({"op": "x"}, bytes(5_000)), mtu=1448)
        talk.time_ns += 5_000_000
    assert findings(read(cluster.packets)) == []


def test_two_senders_share_a_slow_link_unevenly(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    for source, destination in (("w1", "w2"), ("w1", "w3"), ("w2", "w3"), ("w3", "w2")):
        transfer(cluster.fetch(source, destination, 1.0, step_ns=10_000), 3_000_000)
    first = cluster.fetch("w2", "w1", 1.0, step_ns=1_000_000)
    transfer(first, 1_000_000)  # alone
    second = cluster.fetch("w3", "w1", (first.time_ns - cluster.begin_ns) / 1e9, step_ns=1_333_333)
    first.step_ns = 4_000_000
    transfer(first, 2_000_000)
    transfer(second, 6_000_000)
    row = only(read(cluster.packets), "slow link")
    assert (row["source"], row["destination"], row["number"]) == ("w1", "", 2)


def test_slow_link_whose_rate_varies(read: Read) -> None:
    """What it drops was captured before it, in bursts; but even these are slow."""
    cluster = Cluster()
    cluster.work()
    for source, destination in (("w1", "w3"), ("w2", "w3"), ("w3", "w2"), ("w3", "w1")):
        transfer(cluster.fetch(source, destination, 1.0, step_ns=10_000), 3_000_000)
    talk = cluster.fetch("w1", "w2", 1.0)
    for step_ns, size in ((1_000_000, 2_000_000), (300_000, 1_000_000)):
        talk.step_ns = step_ns
        transfer(talk, size)
    row = only(read(cluster.packets), "slow link")
    assert (row["source"], row["destination"]) == ("w1", "w2")
