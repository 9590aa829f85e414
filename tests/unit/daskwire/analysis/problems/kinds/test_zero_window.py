"""Processes that do not read."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, Cluster, Read, only
from tests.unit.daskwire.build import ACK, g3


def test_zero_window_costs_its_duration(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    data = g3({"status": "OK"}, bytes(500_000))
    talk.say(1, data[:200_000], mtu=50_000)
    talk.add(0, ACK, window=0)
    talk.time_ns += int(1.5 * SECOND_NS)
    talk.add(0, ACK, window=500)
    talk.say(1, data[200_000:], mtu=50_000)
    row = only(read(cluster.packets), "zero window")
    assert (row["source"], row["destination"]) == ("w2", "w1")
    assert row["cost_s"] == pytest.approx(1.5, abs=0.01) and "waiting: w1" in row["what"]
