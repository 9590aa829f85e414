"""Tasks with exceptions."""

from __future__ import annotations

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, only
from tests.unit.daskwire.build import g3


def test_erred_tasks(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    erred = [{"op": "task-erred", "key": key, "thread": 1} for key in "ab"]
    cluster.streams["w1"].say(0, g3(erred))
    row = only(read(cluster.packets), "erred tasks")
    assert (row["source"], row["number"]) == ("w1", 2)
