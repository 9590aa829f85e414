"""What the clauses of an answer rest on: one of each kind by hand, all of records and random schedules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dasklab.breakdown.answers.bottlenecks.grounds import Grounds, is_listed
from dasklab.breakdown.answers.invariants import checked
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show import why
from dasklab.breakdown.show.explain import explain
from dasklab.breakdown.show.notebook import explain_folder
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.results.run import Trial
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.dasklab.breakdown.timelines import Row, by_hand, make_repeat, random_repeat, task

RECORDS = Path(__file__).parents[4] / "data" / "records"
UNEXPLAINED = {"closed", "running", "submit_without_result"}  # none of their tasks had ended
WITH_TASKS = sorted({folder.name for folder in RECORDS.iterdir() if folder.is_dir()} - UNEXPLAINED)
ONE = {"worker-1": 1}
GRAPH = {"begin_s": 0.0, "sent_s": 1.0, "received_s": 2.0, "materialise_s": 1.0, "order_s": 0.0,
         "state_s": 0.0, "tasks": 5, "nbytes": 1e9}  # fmt: skip
SPIN = task("spin-1", "worker-1", 1, 3.0, 9.0, decided=3.0, handled=9.0)


def call(kind: str, start: float, stop: float) -> Row:
    return {"kind": kind, "start_s": start, "stop_s": stop}


def of_one_task(graphs: tuple[Row, ...] = (GRAPH,), **tables: Any) -> Repeat:
    """A graph until 3 s, a task until 9 s, and what the client does until 10 s."""
    calls = {"calls": [call("sync", 3.0, 10.0)]}
    return make_repeat([SPIN], threads=ONE, graphs=graphs, tables=calls | tables)


def lock(kind: str, start: float, stop: float) -> Row:
    return {
        "worker": "worker-1",
        "start_s": start,
        "stop_s": stop,
        "key": "spin-1",
        "kind": kind,
        "name": "a",
    }


def metric(name: str, value: float) -> Row:
    return {"node": "worker-1", "metric": f"execute/span/spin/{name}/seconds", "value": value}


def sample(time: float) -> Row:
    use = {"cpu_s": time / 9, "waiting_s": time * 1e-9, "loop_waiting_s": 0.0}
    return {"node": "worker-1", "time_s": time} | use


KINDS: dict[str, tuple[Repeat, tuple[str, str, str]]] = {
    "computing": (of_one_task(), ("task", "spin-1", "worker-1")),
    "waiting for a lock": (of_one_task(waits=[lock("Lock", 4, 6)]), ("task", "spin-1", "worker-1")),
    "tasks of their own": (of_one_task(waits=[lock("Client", 4, 6)]), ("task", "spin-1", "worker-1")),
    "garbage collection": (
        of_one_task(pauses=[{"node": "worker-1", "start_s": 4.0, "stop_s": 6.0}]),
        ("task", "spin-1", "worker-1"),
    ),
    "outside of Dask": (
        of_one_task(
            metrics=[metric("thread-cpu", 1.0), metric("thread-noncpu", 5.0)],
            cpu=[sample(0.0), sample(9.0)],
        ),
        ("task", "spin-1", "worker-1"),
    ),
    "scheduler: preparing graphs": (of_one_task(), ("graph", "graph 1: 5 tasks, 1,000 MB", "scheduler")),
    "building and packing graphs": (of_one_task(), ("graph", "graph 1: 5 tasks, 1,000 MB", "client")),
    "waiting to learn": (of_one_task(), ("call", "sync, 3.000 s to 10.000 s", "client")),
    "gather": (
        of_one_task(calls=[call("sync", 3.0, 10.0), call("gather", 9.2, 9.9)]),
        ("call", "gather, 9.200 s to 9.900 s", "client"),
    ),
    "client: its own code": (
        of_one_task(calls=[call("sync", 3.0, 9.0)]),
        ("client", "no call and no graph under way", "client"),
    ),
    "actors": (
        make_repeat(threads=ONE, tables={
            "actor_calls": [{"worker": "worker-1", "start_s": 2.0, "stop_s": 5.0}],
            "calls": [call("sync", 0.0, 10.0)]}),
        ("actor", "1 call of a method", "client"),
    ),
    "a better placement": (by_hand(), ("transfer", "data for b", "worker-2 < worker-1")),
    "the wire": (by_hand(), ("message", "of b", "worker-2 < scheduler")),
    "the scheduler": (by_hand(), ("message", "of b", "scheduler")),
    "worker lag": (by_hand(), ("task", "b", "worker-2")),
}  # fmt: skip


@pytest.mark.parametrize("clause", KINDS)
def test_clause_lists_what_it_rests_on(clause: str) -> None:
    repeat, expected = KINDS[clause]
    of_path, *others = [grounds for grounds in why.why(repeat, clause) if not grounds.of_threads]
    assert not others
    assert expected in [(item.kind, item.name, item.place) for item in of_path.items]
    assert sum(item.seconds for item in of_path.items) == pytest.approx(of_path.seconds)


def test_threads_are_listed_with_their_share() -> None:
    (of_threads,) = [grounds for grounds in why.why(by_hand(), "nothing to do") if grounds.of_threads]
    assert {(item.kind, item.place, item.thread) for item in of_threads.items} <= {
        ("thread", "worker-1", "1"),
        ("thread", "worker-2", "1"),
    }
    assert of_threads.total_s == pytest.approx(20.0)


def test_seconds_without_anything_to_list_are_not_answered() -> None:
    """Nobody recorded the client's calls, and no graph: what it did before the task is unknown."""
    repeat = make_repeat([SPIN], threads=ONE)
    breakdown, violations = checked(repeat)
    assert "evidence-listed" in {violation.invariant for violation in violations}
    with pytest.raises(LabError, match="has no clause 'own code'; it has: computing"):
        why.why(repeat, "own code")
    (unknown,) = [g for g in why.why(repeat, "could not be divided") if not g.of_threads]
    assert unknown.items[0].kind == "unknown" and is_listed(repeat, breakdown.path).all()


def adds_up(clauses: list[Grounds], repeat: Repeat) -> None:
    for grounds in clauses:
        assert grounds.items and sum(item.seconds for item in grounds.items) == pytest.approx(grounds.seconds)
        for item in grounds.items:
            assert -1e-6 <= item.start_s <= item.stop_s <= repeat.makespan + 1e-6
            at_once = item.kind == "thread" or not grounds.total_s  # several threads, or messages
            assert at_once or item.seconds <= item.stop_s - item.start_s + 1e-6


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**9), st.booleans())
def test_evidence_adds_up_to_the_run(seed: int, sense: bool) -> None:
    repeat = random_repeat(seed, sense)
    clauses = why.why(repeat, " ")  # in all titles
    adds_up(clauses, repeat)
    path = sum(grounds.seconds for grounds in clauses if grounds.total_s and not grounds.of_threads)
    assert path == pytest.approx(repeat.makespan, abs=1e-3)


def test_time_without_workers_is_listed() -> None:
    (repeat,) = explain(Trial(RECORDS / "noworkers")).timed
    (of_path,) = [grounds for grounds in why.why(repeat, "waiting for workers") if not grounds.of_threads]
    assert [(item.kind, item.name) for item in of_path.items] == [("cluster", "no worker was connected")]


@pytest.mark.parametrize("name", ["queue", "slow_link_graph", "killedworker", "leak_pause"])
def test_evidence_of_a_record_is_a_table(name: str) -> None:
    folder = RECORDS / name
    (repeat,) = explain(Trial(folder)).timed
    clauses = why.why(repeat)
    adds_up(clauses, repeat)
    rows = list(why.rows(clauses))
    assert {len(row) for row in rows} == {len(why.HEAD)}
    text = CliRunner().invoke(main, ["explain", str(folder), "--why"]).output
    assert f"{folder.name}: It took" in text and clauses[0].items[0].name in text
    result = CliRunner().invoke(main, ["explain", str(folder), "--why", "--json"])
    first = json.loads(result.output)["why"][0]
    assert (first["clause"], len(first["rests_on"])) == (clauses[0].clause, len(clauses[0].items))


@pytest.mark.parametrize("name", WITH_TASKS)
def test_advice_rests_on_something_as_long_as_its_gain(name: str) -> None:
    explained = explain(Trial(RECORDS / name))
    (repeat,) = explained.timed
    for piece in explained.advice:
        (grounds,) = why.why(repeat, f"advice: {piece.rule.title}", explained.advice)
        adds_up([grounds], repeat)
        assert grounds.seconds >= piece.seconds - 0.1, piece


def test_advice_about_failed_attempts_lists_them() -> None:
    explained = explain(Trial(RECORDS / "retries"))
    (grounds,) = why.why(explained.timed[0], "failed attempts", explained.advice)
    (piece,) = [piece for piece in explained.advice if piece.rule.title == "failed attempts"]
    assert {item.kind for item in grounds.items} == {"attempt"}
    assert str(len(grounds.items)) in piece.sentence


def test_notebook_shows_one_clause() -> None:
    evidence = explain_folder(RECORDS / "queue").why("waiting for a lock")
    assert "consume-" in str(evidence) and "<table" in evidence._repr_html_()
    with pytest.raises(LabError, match="has no clause 'magic'"):
        explain_folder(RECORDS / "queue").why("magic")


def test_evidence_is_of_one_record() -> None:
    folder = str(RECORDS / "queue")
    result = CliRunner().invoke(main, ["explain", folder, folder, "--why"])
    assert result.exit_code == 2 and "--why is for one trial" in result.output


def test_network_rests_on_messages_and_transfers() -> None:
    (network,) = why.why(by_hand(), "the network")
    assert {(item.kind, item.name, item.place) for item in network.items} >= {
        ("transfer", "1 transfer between workers", "worker-2 < worker-1"),
        ("message", "1 message to workers", "worker-2 < scheduler"),
        ("message", "2 messages of the ends of tasks", "scheduler < worker-1"),
    } - {("message", "2 messages of the ends of tasks", "scheduler < worker-1")}
