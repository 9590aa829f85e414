"""Workers that vanish."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, only
from tests.unit.daskwire.build import ACK, FIN, RST, g3


@pytest.mark.parametrize("before", ["", "close-stream", "reset"])
def test_a_worker_that_vanishes_is_lost(read: Read, before: str) -> None:
    """The kernel closes the connections of a process that was killed; one that closes says so.

    A worker whose connection the other host resets ends as well, but the reset is the cause.
    """
    cluster = Cluster()
    cluster.work(without="w2")
    talk = cluster.streams["w2"]
    talk.time_ns = cluster.at(4)
    if before == "close-stream":
        talk.say(0, g3([{"op": "close-stream"}]))
    elif before:
        talk.add(1, RST | ACK)
    talk.add(0, FIN | ACK)
    capture = read(cluster.packets)
    if before:
        resets = ["mid-stream reset"] if before == "reset" else []
        assert [row["problem"] for row in findings(capture)] == resets
    else:
        row = only(capture, "lost worker")
        assert (row["source"], row["destination"], row["cost_s"]) == ("w2", "scheduler", 0.0)


@pytest.mark.parametrize("is_due", [False, True])
def test_a_worker_that_ends_after_the_last_client_is_not_lost(read: Read, is_due: bool) -> None:
    """The cluster was stopped and started again; but a task that is still due needs its worker."""
    cluster = Cluster()
    cluster.work(without="w2")
    cluster.client.time_ns = cluster.at(3)
    cluster.client.add(0, FIN | ACK)
    talk = cluster.streams["w2"]
    if is_due:
        talk.time_ns = cluster.at(3.5)
        talk.say(1, g3([{"op": "compute-task", "key": "again"}]))
    talk.time_ns = cluster.at(4)
    talk.add(0, FIN | ACK)
    again = cluster.open("10.0.0.9", 41000, time_ns=cluster.at(6))
    again.say(0, g3({"op": "register-client", "client": "Client-2"})).say(1, g3([{"op": "stream-start"}]))
    assert [row["problem"] for row in findings(read(cluster.packets))] == ["lost worker"] * is_due
