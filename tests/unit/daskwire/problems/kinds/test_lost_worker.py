"""Workers that vanish."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.build import ACK, FIN, RST, g3
from tests.unit.daskwire.problems.cluster import Cluster, Read, findings, only


@pytest.mark.parametrize("before", ["", "close-stream", "reset"])
def test_a_worker_that_vanishes_is_lost(read: Read, before: str) -> None:
    """The kernel closes the connections of a process that was killed; one that closes says so.

    A worker whose connection the other host resets closes as well, but is not lost.
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
        assert findings(capture) == []
    else:
        row = only(capture, "lost worker")
        assert (row["source"], row["destination"], row["cost_s"]) == ("w2", "scheduler", 0.0)
