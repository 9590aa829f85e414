"""Connects that only a later SYN achieves."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.build import ACK, SYN
from tests.unit.daskwire.problems.cluster import Cluster, Read, connect, only


def test_a_connect_that_only_a_later_syn_achieves(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    connect(cluster, 43000, 3.0, SYN | ACK, attempts=3)
    row = only(read(cluster.packets), "unanswered connects")
    assert row["what"].endswith("had no answer for 2.0 s: 1 connection, 3 SYNs")
    assert row["cost_s"] == pytest.approx(2.0, abs=0.1)
