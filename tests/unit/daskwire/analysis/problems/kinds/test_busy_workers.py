"""Workers that put off requests."""

from __future__ import annotations

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, only
from tests.unit.daskwire.build import g3


def test_busy_workers(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    cluster.fetch("w1", "w2", 2.0).say(1, g3({"status": "busy"}))
    assert only(read(cluster.packets), "busy workers", "note")["destination"] == "w2"
