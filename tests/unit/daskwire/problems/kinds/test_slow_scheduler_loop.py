"""Schedulers that answer late."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.problems.cluster import WORKERS, Cluster, Read, only


def test_scheduler_that_answers_late(read: Read) -> None:
    cluster = Cluster()
    cluster.work(4.0)
    for name in WORKERS:
        cluster.beat(name, 5.0, answer_s=1.4)
    row = only(read(cluster.packets), "slow scheduler loop")
    assert (row["source"], row["number"]) == ("scheduler", 3) and row["cost_s"] == pytest.approx(
        1.4, abs=0.01
    )
