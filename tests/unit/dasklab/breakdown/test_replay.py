"""Had the network taken no time: by hand, where a sum is no answer, and for stamps that make no sense."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dasklab.breakdown.busy import Spells
from dasklab.breakdown.replay import mean, replay
from dasklab.breakdown.run import Fetch, Need, Run, Task
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.dasklab.breakdown.test_partition import by_hand
from tests.unit.dasklab.breakdown.timelines import random_run


def test_a_run_by_hand_is_replayed_as_it_was_and_without_its_four_ways_over_the_wire() -> None:
    found = replay(by_hand())
    assert found.as_it_was_s == pytest.approx(10.0)
    # to worker-1 0.1, its report 0.3, to worker-2 0.3, a's data 0.1 until asked for, 0.4 + 1.8, b's 0.2
    assert found.without_wire_s == pytest.approx(10.0 - 0.1 - 0.3 - 0.3 - 0.1 - 2.2 - 0.2)


def test_what_is_not_on_the_wire_stays() -> None:
    """A peer that is busy, and what is done to the data, are no network's."""
    run = by_hand()
    run.busy = {"worker-1": Spells([(5.15, 7.0)])}  # the sender had not come to it yet
    assert replay(run).without_wire_s == pytest.approx(6.8 + 1.8)


def two_chains() -> Run:
    """worker-2 waits 5 s for data and computes 1 s, while worker-1 computes for 4 s."""
    first = Task("a", "worker-1", 1, 0.0, 0.0, decided=0.0, handled=0.0)
    long = Task("long", "worker-1", 1, 0.0, 4.0, arrived=0.0, decided=0.0, handled=4.0)
    need = (Need("a", 1e6, ("worker-1",)),)
    waits = Task("b", "worker-2", 2, 5.0, 6.0, ready=5.0, arrived=0.0, decided=0.0, handled=6.0, needs=need)
    fetch = Fetch("worker-2", "worker-1", 0.0, 5.0, ("a",), serve_start=0.0)
    return Run(0, 0.0, 6.0, {"worker-1": 1, "worker-2": 1}, [first, long, waits], [fetch])


def test_another_chain_is_what_remains_when_the_wire_is_gone() -> None:
    """The critical path less the wire would say one second; the other worker needs four."""
    found = replay(two_chains())
    assert (found.as_it_was_s, found.without_wire_s) == (pytest.approx(6.0), pytest.approx(4.0))


def test_data_that_came_once_is_waited_for_once_and_threads_are_taken_by_what_is_there() -> None:
    run = two_chains()
    again = replace(run.tasks[2], key="c", start=6.0, stop=7.0, handled=7.0)
    run.tasks.append(again)
    run.stop = 7.0
    found = replay(run)
    assert (found.as_it_was_s, found.without_wire_s) == (pytest.approx(7.0), pytest.approx(4.0))
    run.threads["worker-2"] = 2
    again.thread, again.start, again.stop = 3, 5.0, 9.0
    again.handled = run.stop = 9.0
    assert replay(run).without_wire_s == pytest.approx(4.0)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**9), st.booleans())
@example(seed=134217727, sense=False)  # the report of a task's end left before it ended
def test_whatever_the_stamps_say_a_replay_ends_and_is_no_longer_without_the_wire(
    seed: int, sense: bool
) -> None:
    run = random_run(seed, sense)
    found = replay(run)
    longest = max((task.stop - task.start for task in run.by_key.values()), default=0.0)
    assert longest <= found.without_wire_s + 1e-9 or not run.tasks
    assert 0 <= found.without_wire_s <= found.as_it_was_s
    assert mean([found, found]) == found
