"""The time breakdown adds up, whatever the stamps say; on a small run by hand it is exactly as expected."""

from __future__ import annotations

import numpy as np
import pytest
from dasklab.breakdown.assign.threads import break_down
from dasklab.breakdown.model.causes import (
    CAUSES,
    COMPUTE,
    LAG,
    LOGIC,
    LOOP,
    MESSAGE,
    NOTHING,
    PEER,
    QUEUE,
    RECEIVED,
    RESULT,
    SERIALISE,
    TIMER,
    USER,
    WIRE,
    Cause,
)
from dasklab.breakdown.model.intervals import Intervals
from dasklab.breakdown.model.repeat import Repeat
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.dasklab.breakdown.timelines import by_hand, random_repeat, task


def assert_covers(intervals: Intervals, start: float, stop: float) -> None:
    """Intervals lie one after the other from start to stop, each with a registered cause."""
    assert intervals.start[0] == start
    assert intervals.stop[-1] == stop
    assert intervals.stop[:-1] == pytest.approx(intervals.start[1:], abs=1e-6)
    assert (intervals.seconds > 0).all()
    assert np.isin(intervals.cause, [cause.code for cause in CAUSES]).all()


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10**9), st.booleans())
def test_every_second_of_every_thread_has_one_cause(seed: int, sense: bool) -> None:
    repeat = random_repeat(seed, sense)
    intervals, (_, threads) = break_down(repeat), repeat.thread_rows
    assert len(threads) >= sum(repeat.threads.values())
    for lane in range(len(threads)):
        assert_covers(intervals.select(intervals.lane == lane), repeat.start, repeat.stop)
    assert intervals.seconds.sum() == pytest.approx(len(threads) * repeat.makespan, rel=1e-3)


def rows(repeat: Repeat, worker: str) -> list[tuple[float, float, Cause, str]]:
    intervals = break_down(repeat)
    names = [name for name, _ in repeat.thread_rows[1]]
    mine = intervals.select(intervals.lane == names.index(worker))
    columns = (mine.start.round(6), mine.stop.round(6), mine.cause.tolist(), mine.place.tolist())
    return [
        (start, stop, CAUSES[code], repeat.places.name(place))
        for start, stop, code, place in zip(*columns, strict=True)
    ]


def test_a_run_by_hand() -> None:
    assert rows(by_hand(), "worker-2") == [
        (0.0, 0.4, USER, "client"),
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
        (9.4, 10.0, RESULT, "client"),
    ]


def seconds(repeat: Repeat, worker: str) -> dict[Cause, float]:
    totals: dict[Cause, float] = {}
    for start, stop, cause, _ in rows(repeat, worker):
        totals[cause] = totals.get(cause, 0) + stop - start
    return totals


def test_a_busy_process_is_told_apart_from_the_wire() -> None:
    """Only the writer's first busy interval and the reader's last one count."""
    totals = seconds(
        by_hand(
            busy={
                "worker-1": [
                    (4.8, 5.1),
                    (5.15, 5.5),
                    (6.0, 6.1),
                ],  # handles the request, goes on after packing
                "worker-2": [(5.6, 5.9), (6.7, 7.2)],  # the first one is unrelated
                "scheduler": [(3.5, 3.8), (4.1, 4.3)],
            }
        ),
        "worker-2",
    )
    assert totals[PEER] == pytest.approx(0.2 + 0.3)
    assert totals[RECEIVED] == pytest.approx(0.3)
    assert totals[WIRE] == pytest.approx(0.4 + 1.8 - 0.5 - 0.3)
    assert totals[LOOP] == pytest.approx(0.495 + 0.1 + 0.1)


def test_what_a_timer_held_back_is_told_apart_from_what_was_late() -> None:
    totals = seconds(by_hand(first={"report_due_s": 3.102}, second={"due_s": 3.9}), "worker-2")
    assert totals[TIMER] == pytest.approx(0.005 + 0.002)
    assert totals[LOOP] == pytest.approx(0.5 - 0.005)
    assert totals[LAG] == pytest.approx(0.8 + 0.2 - 0.002)


def test_idle_beside_a_worker_with_more_tasks_than_threads() -> None:
    waiting = task("c", "worker-1", 1, 3.0, 4.0, decided=0.5)
    repeat = by_hand(more=[waiting])
    assert seconds(repeat, "worker-2")[QUEUE] == pytest.approx(2.5)
    assert {place for _, _, cause, place in rows(repeat, "worker-2") if cause is QUEUE} == {"worker-1"}
