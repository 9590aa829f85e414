"""Small writes that wait for delayed acknowledgements."""

from __future__ import annotations

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, only
from tests.unit.daskwire.build import ACK, PSH, stamp
from tests.unit.daskwire.conftest import golden_capture


def test_websockets_wait_for_delayed_acks() -> None:
    """Tornado switches TCP_NODELAY off after an upgrade, and Dask's connector leaves it so."""
    rows = findings(golden_capture("ws-2026.8.0"))
    assert {(row["problem"], row["source"]) for row in rows} == {
        ("delayed ACKs", "worker-1"),
        ("delayed ACKs", "worker-2"),
    }


def test_delayed_acks_with_small_writes(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    talk = cluster.fetch("w1", "w2", 2.0)
    for number in range(20):
        talk.add(1, ACK | PSH, bytes(30), options=stamp(100 + 2 * number, 1))
        talk.sent[1] += 30
        talk.time_ns += 41_000_000
        talk.add(0, ACK, options=stamp(7, 100 + 2 * number))
    row = only(read(cluster.packets), "delayed ACKs")
    assert (row["source"], row["number"]) == ("w1", 19) and "came 41 ms late" in row["what"]
