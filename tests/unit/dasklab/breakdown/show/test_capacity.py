"""How many workers were there is said where it changed, and time without workers has a cause of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dasklab.breakdown.answers.facts.failures import Failures
from dasklab.breakdown.answers.path.critical_path import critical_path
from dasklab.breakdown.answers.summary import summarise
from dasklab.breakdown.assign.threads import break_down
from dasklab.breakdown.model.causes import NO_WORKER, PAUSED, PLAN, RESULT
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.capacity import capacity_clause, threads_in_use
from dasklab.breakdown.show.changes import change_sentences
from dasklab.breakdown.show.explain import explain
from dasklab.results.run import open_trial

from tests.unit.dasklab.breakdown.timelines import make_repeat, task

DATA = Path(__file__).parents[4] / "data" / "records"


def stay(worker: str, joined: float | None = None, left: float | None = None) -> dict[str, Any]:
    return {"worker": worker, "threads": 1, "joined_s": joined, "left_s": left}


def repeat_with(*stays: dict[str, Any]) -> Repeat:
    """A repeat from 0 to 10, whose only task ran from 8 to 9 on worker-1."""
    row = task("a-1", "worker-1", 1, 8.0, 9.0, decided=7.9, handled=9.1, waiting=0.5)
    return make_repeat([row], start=0.0, stop=10.0, tables={"workers": list(stays)})


ONE, TWO, THREE = (f"worker-{number}" for number in (1, 2, 3))


def test_threads_that_ran_no_task_are_counted() -> None:
    """Three workers from 6 s on, of which one ran a task, from 8 s to 9 s."""
    assert threads_in_use(repeat_with(stay(ONE), stay(TWO, 6.0), stay(THREE, 6.0))) == (
        "The cluster changed its size. It had 1 thread until 6.0 s, at most 0 of them at work; then 3 threads"
        " until 10.0 s, at most 1 of them at work. The fewest that would have done the same are 4 of 18"
        " thread-seconds."
    )
    often = repeat_with(stay(ONE), *(stay(TWO, time, time + 1.0) for time in (1.0, 3.0, 5.0)))
    assert threads_in_use(often).startswith("The cluster changed its size. The fewest that would have done")
    assert threads_in_use(repeat_with(stay(ONE), stay(TWO))) == ""


@pytest.mark.parametrize(
    ("stays", "clause"),
    [
        ([stay(ONE), stay(TWO)], ""),
        ([stay(ONE, 4.6)], "no worker until 4.6 s, then 1 worker"),
        (
            [stay(ONE), stay(TWO, 6.0), stay(THREE, 6.0)],
            "1 of 3 workers until 6.0 s, then all 3 workers",
        ),
        (
            [stay(ONE), stay(TWO, None, 3.0)],
            "both workers until 3.0 s, then 1 of 2 workers",
        ),
        (
            [stay(ONE, None, 2.0), stay(ONE, 5.0)],
            "1 worker until 2.0 s, then no worker until 5.0 s, then 1 worker",
        ),
        ([stay(ONE, None, 2.0), stay(ONE, 2.05)], ""),
        (
            [stay(ONE), *(stay(TWO, time, time + 1.0) for time in (1.0, 3.0, 5.0))],
            "between 1 and 2 workers, 1.3 on average",
        ),
    ],
    ids=["always", "late", "more", "fewer", "again", "too short", "often"],
)
def test_a_number_of_workers_that_changes_is_said(stays: list[dict[str, Any]], clause: str) -> None:
    assert capacity_clause(repeat_with(*stays)) == clause


def test_waiting_for_the_first_worker_is_not_preparing_graphs() -> None:
    """In the record, ten tasks of 0.1 s wait for a worker that joins after 4.6 s."""
    summary = explain(open_trial(DATA / "noworkers")).summary
    assert summary.path_by_cause[NO_WORKER] == pytest.approx(4.6, abs=0.1)
    assert summary.by_cause[NO_WORKER] == pytest.approx(4.6, abs=0.1)
    assert summary.path_by_cause.get(PLAN, 0.0) < 0.1
    bottleneck, place, _ = summary.ranked()[0]
    assert (bottleneck.name, place) == ("no worker", "")
    tasks = sum(seconds for (cause, place), seconds in summary.breakdown.items() if place == "worker-0")
    assert tasks == pytest.approx(1.3, abs=0.1)  # it was there for 1.3 s; 4.6 s of it used to be scaled up


def test_a_restart_inside_the_block_keeps_the_account() -> None:
    summary = explain(open_trial(DATA / "restart_inside")).summary
    assert summary.by_cause[NO_WORKER] == pytest.approx(5.2, abs=0.2)
    assert sum(summary.breakdown.values()) == pytest.approx(summary.makespan_s, rel=1e-3)
    assert summary.threads == 2  # the nannies started both workers again, with one thread each


def test_a_paused_worker_is_named_and_not_the_one_that_others_waited_for() -> None:
    summary = explain(open_trial(DATA / "leak_pause")).summary
    assert {place for (cause, place) in summary.breakdown if cause is PAUSED} == {"worker-1"}


def test_no_worker_is_no_cause_where_workers_were_there_all_the_time() -> None:
    repeat = repeat_with(stay(ONE))
    assert not critical_path(repeat).is_cause(NO_WORKER).any()
    assert NO_WORKER not in summarise([repeat]).by_cause


REMOVED = {"time_s": 4.01, "subject": "all", "kind": "remove-worker"}
DIED = REMOVED | {"detail": '{"worker": "worker-2", "expected": false}'}
RETIRED = REMOVED | {"detail": '{"worker": "worker-2", "expected": true}'}
CLOSING = {"time_s": 3.9, "subject": TWO, "kind": "worker-status-change", "detail": '{"status": "closing"}'}
GONE = [stay(ONE), stay(TWO, None, 4.0)]


@pytest.mark.parametrize(
    ("stays", "events", "missing_s"),
    [
        (GONE, [DIED], 6.0),
        (GONE, [RETIRED], 0.0),
        (GONE, [CLOSING, DIED], 0.0),
        (GONE, [], 0.0),
        ([*GONE, stay(TWO, 7.0)], [DIED], 3.0),
        ([*GONE, stay(TWO, 7.0, 9.0)], [DIED], 3.0),
        ([*GONE, stay(THREE, 6.0)], [DIED], 2.0),
    ],
    ids=["died", "retired", "closed", "unknown", "came back", "came back and left", "replaced"],
)
def test_a_dead_worker_is_missing_until_another_takes_its_place(
    stays: list[dict[str, Any]], events: list[dict[str, Any]], missing_s: float
) -> None:
    row = task("a-1", ONE, 1, 8.0, 9.0, decided=7.9, handled=9.1, waiting=0.5)
    workers = [{"address": each["worker"]} | each for each in stays]
    repeat = make_repeat([row], unfinished=[(0.0, 1)], tables={"workers": workers, "events": events})
    intervals = break_down(repeat)
    assert intervals.seconds[intervals.is_cause(NO_WORKER)].sum() == pytest.approx(missing_s)
    joined = [text for text in map(str, change_sentences(repeat, Failures())) if "joined" in text]
    assert len(joined) == len(stays) - 2


def test_a_pause_ends_with_its_worker() -> None:
    paused = {"time_s": 2.0, "subject": ONE, "kind": "worker-status-change", "detail": '{"status": "paused"}'}
    tables = {"workers": [stay(ONE, None, 4.0), stay(ONE, 5.0)], "events": [paused]}
    intervals = make_repeat(tables=tables).evidence.paused
    assert (intervals.start.tolist(), intervals.stop.tolist()) == ([2.0], [4.0])


def test_a_call_during_which_no_task_ran_waited_for_none() -> None:
    """The first task ran at once after the call, and the scheduler had handled its end 20 ms after it."""
    row = task("a-1", "worker-1", 1, 5.01, 5.015, decided=5.005, handled=5.02, waiting=5.004)
    calls = [{"kind": "sync", "start_s": 0.0, "stop_s": 5.0}, {"kind": "sync", "start_s": 5.0, "stop_s": 5.1}]
    path = critical_path(make_repeat([row], stop=5.1, threads={ONE: 1}, tables={"calls": calls}))
    assert path.seconds[path.is_cause(RESULT)].sum() < 0.1
