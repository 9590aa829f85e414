"""Clients that leave while their tasks have no result."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, only
from tests.unit.daskwire.build import ACK, FIN, g3


def leave(cluster: Cluster, goodbye: bool, open_task: bool) -> None:
    if open_task:
        cluster.streams["w1"].time_ns = cluster.at(1.0)
        cluster.streams["w1"].say(1, g3([{"op": "compute-task", "key": "x"}]))
    cluster.work()
    cluster.client.time_ns = cluster.at(5.0)
    if goodbye:
        cluster.client.say(0, g3([{"op": "close-client"}]))
    cluster.client.add(0, FIN | ACK)


def test_killed_client(read: Read) -> None:
    cluster = Cluster()
    leave(cluster, goodbye=False, open_task=True)
    row = only(read(cluster.packets), "lost client")
    assert (row["source"], row["number"]) == ("client", 1) and row["cost_s"] == pytest.approx(4.0, abs=0.1)


def test_client_that_is_killed_before_its_first_task(read: Read) -> None:
    cluster = Cluster()
    cluster.client.time_ns = cluster.at(4.0)
    cluster.client.say(0, g3([{"op": "update-graph", "keys": ["x"]}]))
    leave(cluster, goodbye=False, open_task=False)
    row = only(read(cluster.packets), "lost client")
    assert "1 graph had no result yet" in row["what"] and row["cost_s"] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(("goodbye", "open_task"), [(True, True), (False, False)])
def test_client_that_says_so_or_only_holds_results(read: Read, goodbye: bool, open_task: bool) -> None:
    cluster = Cluster()
    leave(cluster, goodbye, open_task)
    capture = read(cluster.packets)
    assert "lost client" not in [row["problem"] for row in findings(capture)]
    if not goodbye:
        assert "released none of its latest results" in only(capture, "lost client", "note")["what"]
