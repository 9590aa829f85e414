"""The replay without the wire: by hand, where a sum would be wrong, and for stamps that make no sense."""

from __future__ import annotations

import pytest
from dasklab.breakdown.answers.replay import mean, replay
from dasklab.breakdown.model.repeat import Repeat
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.dasklab.breakdown.timelines import Row, by_hand, fetch, make_repeat, random_repeat, task


def test_a_run_by_hand_is_replayed_as_it_was_and_without_its_wire() -> None:
    result = replay(by_hand())
    assert result.as_it_was_s == pytest.approx(10.0)
    # to worker-1 0.1, its report 0.3, to worker-2 0.3, a's data 0.1 + 0.4 + 1.8, b's report 0.2
    assert result.without_wire_s == pytest.approx(10.0 - 0.1 - 0.3 - 0.3 - 0.1 - 2.2 - 0.2)


def test_time_that_is_not_on_the_wire_remains() -> None:
    repeat = by_hand(busy={"worker-1": [(5.15, 7.0)]})  # the sender's loop was busy after it wrote
    assert replay(repeat).without_wire_s == pytest.approx(6.8 + 1.8)


def two_chains(*more: Row, stop: float = 6.0, threads: int = 1) -> Repeat:
    """worker-2 waits 5 s for data and computes 1 s, while worker-1 computes for 4 s."""
    need = (("a", 1e6, ("worker-1",)),)
    tasks = [
        task("a", "worker-1", 1, 0.0, 1e-9, decided=0.0, handled=1e-9),
        task("long", "worker-1", 1, 1e-9, 4.0, arrived=0.0, decided=0.0, handled=4.0),
        task("b", "worker-2", 2, 5.0, 6.0, ready=5.0, arrived=0.0, decided=0.0, handled=6.0, needs=need),
        *({**row, "needs": need} for row in more),
    ]
    brought = fetch("worker-2", "worker-1", 0.0, 5.0, ("a",), serve_start_s=0.0)
    return make_repeat(tasks, [brought], stop=stop, threads={"worker-1": 1, "worker-2": threads})


def test_another_chain_remains_without_the_wire() -> None:
    """The critical path minus the wire would be one second; the other worker needs four."""
    result = replay(two_chains())
    assert (result.as_it_was_s, result.without_wire_s) == (pytest.approx(6.0), pytest.approx(4.0))


def test_data_is_waited_for_once() -> None:
    again = task("c", "worker-2", 2, 6.0, 7.0, ready=5.0, arrived=0.0, decided=0.0, handled=7.0)
    result = replay(two_chains(again, stop=7.0))
    assert (result.as_it_was_s, result.without_wire_s) == (pytest.approx(7.0), pytest.approx(4.0))


def test_a_second_thread_runs_what_is_ready() -> None:
    again = task("c", "worker-2", 3, 5.0, 9.0, ready=5.0, arrived=0.0, decided=0.0, handled=9.0)
    assert replay(two_chains(again, stop=9.0, threads=2)).without_wire_s == pytest.approx(4.0)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**9), st.booleans())
@example(seed=134217727, sense=False)  # the report of a task's end left before it ended
def test_a_replay_ends_and_is_no_longer_without_the_wire(seed: int, sense: bool) -> None:
    repeat = random_repeat(seed, sense)
    result = replay(repeat)
    longest = (repeat.tasks.stop - repeat.tasks.start).max(initial=0.0)
    assert longest <= result.without_wire_s + 1e-6 or not len(repeat.tasks)
    assert 0 <= result.without_wire_s <= result.as_it_was_s
    assert mean([result, result]) == result
