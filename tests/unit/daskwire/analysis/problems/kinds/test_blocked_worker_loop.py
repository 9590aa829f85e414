"""Pauses of workers, and pauses that are none of their problems."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import WORKERS, Cluster, Read, findings
from tests.unit.daskwire.build import HELLO, g3


def test_pause_of_all_workers_is_not_a_problem(read: Read) -> None:
    cluster = Cluster()
    for name in WORKERS:
        for at_s in (0.0, 0.5, 4.5, 5.0):
            cluster.beat(name, at_s)
    assert findings(read(cluster.packets)) == []


@pytest.mark.parametrize(("pause_s", "kinds"), [(0.9, []), (1.3, ["blocked worker loop"])])
def test_silence_of_a_second_is_a_problem(read: Read, pause_s: float, kinds: list[str]) -> None:
    """A worker that sends other messages meanwhile may send a heartbeat 1 s later than requested."""
    cluster = Cluster()
    cluster.work(without="w2")
    for step in range(6):
        cluster.beat("w2", step * (pause_s + 0.1))
        cluster.beat("w2", step * (pause_s + 0.1) + 0.1)
    assert [row["problem"] for row in findings(read(cluster.packets))] == kinds


def test_pause_before_the_first_result_is_start_up(read: Read) -> None:
    cluster = Cluster()
    talk = cluster.streams["w2"]
    talk.packets = [p for p in talk.packets if b"task-finished" not in p[1]]
    cluster.work(without="w2")
    for at_s in (0.0, 4.5, 5.0):
        cluster.beat("w2", at_s)
    talk.say(0, g3([{"op": "task-finished", "key": "w2-first", "thread": 1}]))
    assert findings(read(cluster.packets)) == []


def test_pause_before_the_first_computation_is_complete_is_start_up(read: Read) -> None:
    cluster = Cluster()
    cluster.client.packets = [p for p in cluster.client.packets if b"key-in-memory" not in p[1]]
    cluster.client.sent[1] = len(g3(HELLO))
    cluster.work(without="w2")
    for at_s in (0.0, 4.5, 5.0):
        cluster.beat("w2", at_s)
    cluster.client.time_ns = cluster.at(6.0)
    cluster.complete()
    assert findings(read(cluster.packets)) == []
