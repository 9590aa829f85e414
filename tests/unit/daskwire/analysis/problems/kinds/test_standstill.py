"""Clusters that exchange nothing but heartbeats."""

from __future__ import annotations

import pytest

from tests.unit.daskwire.analysis.problems.cluster import WORKERS, Cluster, Read, connect, findings, only
from tests.unit.daskwire.build import ACK, FIN, RST, g3


def beats(cluster: Cluster, start_s: float, stop_s: float, **executing: int) -> None:
    """Let all workers send heartbeats with the number of tasks that they execute."""
    for step in range(int(start_s * 2), int(stop_s * 2)):
        for name, address in WORKERS.items():
            talk = cluster.streams[name]
            talk.time_ns = cluster.at(step / 2)
            counts = {"memory": 1, "executing": executing.get(name, 0)}
            own = {"address": f"tcp://{address}:3333", "metrics": {"task_counts": counts}}
            talk.say(0, g3({"op": "heartbeat_worker", **own}))
            talk.say(1, g3({"status": "OK", "heartbeat-interval": 0.5}))


def send_task(cluster: Cluster, at_s: float) -> None:
    cluster.streams["w2"].time_ns = cluster.at(at_s)
    cluster.streams["w2"].say(1, g3([{"op": "compute-task", "key": "x"}]))


def report_task(cluster: Cluster, at_s: float) -> None:
    cluster.streams["w2"].time_ns = cluster.at(at_s)
    cluster.streams["w2"].say(0, g3([{"op": "task-finished", "key": "x", "thread": 1}]))


def send_graph(cluster: Cluster, at_s: float) -> None:
    cluster.client.time_ns = cluster.at(at_s)
    cluster.client.say(0, g3([{"op": "update-graph", "keys": ["y"]}]))


@pytest.mark.parametrize("goes_on", [True, False])
def test_tasks_that_no_worker_executes(read: Read, goes_on: bool) -> None:
    cluster = Cluster()
    beats(cluster, 0.0, 2.0)
    send_task(cluster, 2.0)
    beats(cluster, 2.5, 20.0)
    if goes_on:
        report_task(cluster, 20.0)
    row = only(read(cluster.packets), "standstill")
    assert row["what"] == (
        f"only heartbeats for {row['cost_s']:.1f} s: 1 task had no result, but w2 executed none"
    )
    assert row["cost_s"] == pytest.approx(18.0 if goes_on else 17.5, abs=0.1)


def test_graph_of_which_no_task_is_sent(read: Read) -> None:
    cluster = Cluster()
    beats(cluster, 0.0, 2.0)
    send_graph(cluster, 2.0)
    beats(cluster, 2.5, 6.5)
    cluster.client.time_ns = cluster.at(6.5)
    cluster.client.say(1, g3([{"op": "adjust-heartbeat-interval", "interval": 5}]))
    beats(cluster, 7.0, 12.5)
    row = only(read(cluster.packets), "standstill")
    assert row["what"].endswith(
        ": client had sent a graph, and the scheduler sent none of its tasks to a worker"
    )
    assert row["cost_s"] == pytest.approx(10.0, abs=0.1)


def test_several_standstills_are_one_row(read: Read) -> None:
    cluster = Cluster()
    for start_s in (0.0, 10.0):
        send_task(cluster, start_s)
        beats(cluster, start_s + 0.5, start_s + 8.5)
        report_task(cluster, start_s + 8.5)
    row = only(read(cluster.packets), "standstill")
    assert row["number"] == 2 and row["cost_s"] == pytest.approx(17.0, abs=0.1)
    assert " (2 times, 17.0 s in all)" in row["what"]


def test_standstill_before_the_first_result_is_a_note(read: Read) -> None:
    """The scheduler and the workers import libraries."""
    cluster = Cluster(has_worked=False)
    send_graph(cluster, 0.0)
    beats(cluster, 0.5, 8.0)
    send_task(cluster, 8.0)
    report_task(cluster, 8.1)
    assert only(read(cluster.packets), "standstill", "note")["cost_s"] == pytest.approx(8.0, abs=0.1)


def test_scheduler_that_answers_nothing_has_a_blocked_loop(read: Read) -> None:
    cluster = Cluster()
    beats(cluster, 0.0, 2.0)
    send_graph(cluster, 2.0)
    send_task(cluster, 10.0)
    assert "standstill" not in read(cluster.packets).table("problems")["problem"]


@pytest.mark.parametrize("case", ["executes", "nothing is due", "short", "shut down"])
def test_cluster_that_waits_for_good_reason(read: Read, case: str) -> None:
    cluster = Cluster()
    beats(cluster, 0.0, 2.0)
    if case == "shut down":
        cluster.client.time_ns = cluster.at(1.5)
        cluster.client.say(0, g3([{"op": "close-client"}])).add(0, FIN | ACK)
    elif case != "nothing is due":
        send_task(cluster, 2.0)
    beats(cluster, 2.5, 6.5 if case == "short" else 20.0, w2=int(case == "executes"))
    if case == "short":
        report_task(cluster, 6.5)
        beats(cluster, 7.0, 20.0)
    assert "standstill" not in [row["problem"] for row in findings(read(cluster.packets))]


def test_standstill_is_a_consequence_of_what_explains_it(read: Read) -> None:
    cluster = Cluster()
    send_task(cluster, 0.0)
    beats(cluster, 0.5, 10.0)
    for at_s in range(1, 10):
        connect(cluster, 50000 + at_s, at_s, RST | ACK)
    capture = read(cluster.packets)
    assert [row["problem"] for row in findings(capture)] == ["refused connects"]
    assert findings(capture)[0]["cost_s"] == pytest.approx(9.5, abs=0.6)  # no second counts twice
    assert "(a consequence of: refused connects" in only(capture, "standstill", "note")["what"]
