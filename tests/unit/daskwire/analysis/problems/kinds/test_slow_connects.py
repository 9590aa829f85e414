"""Connects that take long."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import SECOND_NS, Cluster, Read, only
from tests.unit.daskwire.build import HELLO, Talk, g3


def test_slow_handshake_is_a_slow_connect(read: Read) -> None:
    cluster = Cluster()
    talk = Talk(client=("10.0.0.9", 50000), isn=(77, 88), time_ns=cluster.at(1)).open().say(0, g3(HELLO))
    talk.time_ns += 3 * SECOND_NS
    talk.say(1, g3(HELLO))
    cluster.talks.append(talk)
    cluster.work()
    row = only(read(cluster.packets), "slow connects")
    assert row["source"] == "scheduler" and row["cost_s"] == pytest.approx(3.0, abs=0.01)
