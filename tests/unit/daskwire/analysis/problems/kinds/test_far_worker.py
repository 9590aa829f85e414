"""Workers that are far from their scheduler."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read, findings, only
from tests.unit.daskwire.build import HELLO, Talk, g3


class FarTalk(Talk):
    """A connection that is captured at the scheduler: the packets of the client take some time to arrive."""

    away_ns = 60_000_000

    def add(self, who: int, flags: int, payload: bytes = b"", seq: int | None = None, **more: object) -> None:
        if who == 0:  # an answer of the client comes a round trip later
            self.time_ns += 2 * self.away_ns
        super().add(who, flags, payload, seq, **more)


def far(cluster: Cluster, away_ns: int, tasks: int) -> None:
    talk = FarTalk(client=("10.0.0.5", 40000), isn=(99, 77), time_ns=cluster.at(0.0))
    talk.away_ns = away_ns
    cluster.talks.append(talk.open())
    talk.say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(0, g3({"op": "register-worker", "reply": False, "address": "tcp://10.0.0.5:3333", "name": "w4"}))
    talk.say(1, g3({"status": "OK"}))
    for number in range(tasks):
        talk.say(1, g3([{"op": "compute-task", "key": f"far-{number}"}]))
        talk.say(0, g3([{"op": "task-finished", "key": f"far-{number}", "thread": 1}]))


def test_far_worker_costs_half_a_round_trip_per_message(read: Read) -> None:
    cluster = Cluster()
    far(cluster, 60_000_000, 20)
    cluster.work(15.0)
    row = only(read(cluster.packets), "far worker")
    assert row["source"] == "w4" and row["number"] == 42
    assert row["what"].startswith("its RTT with the scheduler is at least 120.")
    assert row["cost_s"] == pytest.approx(42 * 0.06, rel=0.05)


@pytest.mark.parametrize(("away_ns", "tasks"), [(1_000_000, 20), (60_000_000, 2)])
def test_near_worker_and_few_messages_are_no_problem(read: Read, away_ns: int, tasks: int) -> None:
    cluster = Cluster()
    far(cluster, away_ns, tasks)
    cluster.work(15.0)
    assert findings(read(cluster.packets)) == []
