"""The account adds up, whatever the stamps say; and on a small run made by hand it is what it must be."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from dasklab.breakdown.busy import Spells
from dasklab.breakdown.causes import (
    CLIENT,
    COMPUTE,
    LAG,
    LOGIC,
    LOOP,
    MESSAGE,
    NOTHING,
    PEER,
    QUEUE,
    RECEIVED,
    SERIALISE,
    TIMER,
    WIRE,
    WORDS,
    Part,
)
from dasklab.breakdown.critical_path import critical_path
from dasklab.breakdown.partition import account
from dasklab.breakdown.run import Fetch, Need, Run, Task
from dasklab.breakdown.summary import Difference, summarise
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.dasklab.breakdown.timelines import random_run


def covers(parts: list[Part], start: float, stop: float) -> None:
    """Parts lie one after the other from start to stop, each with a cause."""
    assert parts[0].start == start
    assert parts[-1].stop == stop
    assert all(a.stop == pytest.approx(b.start, abs=1e-6) for a, b in pairwise(parts))
    assert all(part.seconds >= 0 and part.cause in WORDS for part in parts)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10**9), st.booleans())
def test_every_second_of_every_thread_has_one_cause(seed: int, sense: bool) -> None:
    run = random_run(seed, sense)
    threads = account(run)
    assert len(threads) >= sum(run.threads.values())
    for thread in threads:
        covers(list(thread.parts), run.start, run.stop)
    total = sum(part.seconds for thread in threads for part in thread.parts)
    assert total == pytest.approx(len(threads) * run.makespan, rel=1e-3)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10**9), st.booleans())
def test_the_critical_path_goes_from_start_to_end(seed: int, sense: bool) -> None:
    run = random_run(seed, sense)
    covers(critical_path(run), run.start, run.stop)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_difference_adds_up(one: int, other: int) -> None:
    difference = Difference(summarise([random_run(one, True)]), summarise([random_run(other, True)]))
    for cells in (difference.account, difference.path):
        assert sum(cells.values()) == pytest.approx(difference.makespan_s, abs=1e-6)
    for summary in (difference.old, difference.new):
        assert sum(summary.culprits.values()) == pytest.approx(summary.makespan_s, abs=1e-6)


def by_hand() -> Run:
    """One thread each on two workers: ``b`` on worker-2 needs ``a`` of worker-1, which ends at 3."""
    first = Task("a", "worker-1", 1, 1.0, 3.0, executing=0.9, ready=0.8, arrived=0.7, sent=0.6, decided=0.5,
                 done=3.1, report_due=3.3, reported=3.3, handled=3.6, stimulus="update-graph")  # fmt: skip
    second = Task("b", "worker-2", 2, 8.0, 9.0, executing=7.9, ready=7.5, arrived=4.5, sent=4.2, decided=3.7,
                  due=4.2, done=9.1, reported=9.2, handled=9.4, trigger="a", stimulus="task-finished",
                  needs=(Need("a", 8.0, ("worker-1",)),))  # fmt: skip
    fetch = Fetch("worker-2", "worker-1", 4.6, 7.4, ("a",), serve_start=5.0, serialise=0.2, deserialise=0.4)
    run = Run(0, 0.0, 10.0, {"worker-1": 1, "worker-2": 1}, [first, second], [fetch])
    run.unfinished = [(0.4, 2), (3.6, 1), (9.4, 0)]
    return run


def test_a_run_by_hand() -> None:
    found = [(round(p.start, 6), round(p.stop, 6), p.cause, p.place) for p in account(by_hand())[1].parts]
    assert found == [
        (0.0, 0.4, CLIENT, "client"),
        (0.4, 3.0, NOTHING, "worker-2"),
        (3.0, 3.1, LAG, "worker-1"),
        (3.1, 3.295, LAG, "worker-1"),
        (3.295, 3.3, TIMER, "worker-1"),
        (3.3, 3.6, MESSAGE, "scheduler < worker-1"),
        (3.6, 3.7, LOGIC, "scheduler"),
        (3.7, 4.195, LOOP, "scheduler"),
        (4.195, 4.2, TIMER, "scheduler"),
        (4.2, 4.5, MESSAGE, "worker-2 < scheduler"),
        (4.5, 4.6, LAG, "worker-2"),
        (4.6, 5.0, WIRE, "worker-1 < worker-2"),
        (5.0, 5.2, SERIALISE, "worker-1"),
        (5.2, 7.0, WIRE, "worker-2 < worker-1"),
        (7.0, 7.4, SERIALISE, "worker-2"),
        (7.4, 7.5, LAG, "worker-2"),
        (7.5, 7.9, LAG, "worker-2"),
        (7.9, 8.0, LAG, "worker-2"),
        (8.0, 9.0, COMPUTE, "worker-2"),
        (9.0, 9.4, NOTHING, "worker-2"),
        (9.4, 10.0, CLIENT, "client"),
    ]


def seconds(run: Run, worker: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for thread in account(run):
        for part in thread.parts:
            if thread.worker == worker:
                found[part.cause] = round(found.get(part.cause, 0) + part.seconds, 6)
    return found


def test_a_busy_process_is_told_from_the_wire() -> None:
    """Of what passes between two only the writer's first spell and the reader's last one count."""
    run = by_hand()
    run.busy = {
        "worker-1": Spells([(4.8, 5.1), (5.15, 5.5), (6.0, 6.1)]),  # takes it up, goes on after packing
        "worker-2": Spells([(5.6, 5.9), (6.7, 7.2)]),  # the first has nothing to do with it
        "scheduler": Spells([(3.5, 3.8), (4.1, 4.3)]),
    }
    found = seconds(run, "worker-2")
    assert found[PEER] == pytest.approx(0.2 + 0.3)
    assert found[RECEIVED] == pytest.approx(0.3)
    assert found[WIRE] == pytest.approx(0.4 + 1.8 - 0.5 - 0.3)
    assert found[LOOP] == pytest.approx(0.495 + 0.1 + 0.1)


def test_what_a_timer_held_back_is_told_from_what_was_late() -> None:
    run = by_hand()
    run.tasks[1].due, run.tasks[0].report_due = 3.9, 3.102
    found = seconds(run, "worker-2")
    assert found[TIMER] == pytest.approx(0.005 + 0.002)
    assert found[LOOP] == pytest.approx(0.5 - 0.005)
    assert found[LAG] == pytest.approx(0.8 + 0.2 - 0.002)


def test_idle_beside_a_worker_with_more_than_it_has_threads() -> None:
    run = by_hand()
    run.tasks.append(replace(run.tasks[0], key="c", start=3.0, stop=4.0, decided=0.5))
    assert seconds(run, "worker-2")[QUEUE] == pytest.approx(2.5)


def test_the_path_by_hand_is_the_whole_story() -> None:
    found = [(round(p.start, 6), p.cause, p.key) for p in critical_path(by_hand())]
    assert found[0] == (0.0, CLIENT, "")
    assert (1.0, COMPUTE, "a") in found
    assert (5.2, WIRE, "b") in found
    assert found[-1] == (9.4, CLIENT, "")


def test_a_task_that_waits_for_its_thread_waits_for_what_runs_there() -> None:
    run = by_hand()
    run.tasks.append(replace(run.tasks[1], key="c", start=2.0, stop=7.8, trigger="", decided=0.5, needs=()))
    found = [(round(p.start, 6), round(p.stop, 6), p.cause, p.key) for p in critical_path(run)]
    assert (2.0, 7.8, COMPUTE, "c") in found
    assert (7.8, 7.9, LAG, "b") in found
