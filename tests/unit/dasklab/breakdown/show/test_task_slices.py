"""Tasks on their threads, lanes for what overlaps, and arrows between tasks and transfers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from dasklab.breakdown.assign.threads import break_down
from dasklab.breakdown.model.intervals import TICK_S
from dasklab.breakdown.model.lanes import assign_lanes
from dasklab.breakdown.show.trace.moved_results import moved_results
from dasklab.breakdown.show.trace.task_slices import is_running, task_slices

from tests.unit.dasklab.breakdown.timelines import by_hand, random_repeat


@pytest.mark.parametrize("seed", range(30))
def test_tasks_and_waits_cover_each_thread_once(seed: int) -> None:
    repeat = random_repeat(seed, sense=True)
    intervals = break_down(repeat)
    tasks = task_slices(repeat, intervals)
    waits = intervals.select(~is_running(repeat, intervals))
    assert (tasks.stop - tasks.start).sum() + waits.seconds.sum() == pytest.approx(intervals.seconds.sum())
    assert len(set(tasks.task.tolist())) == len(tasks)
    inside = tasks.start >= repeat.tasks.start[tasks.task] - TICK_S
    assert inside.all() and (tasks.stop <= repeat.tasks.stop[tasks.task] + TICK_S).all()
    parts = [part for row in range(len(tasks)) for part in tasks.parts_of(row)]
    assert parts == list(range(len(tasks.parts)))


def test_a_run_without_tasks_occupies_nothing() -> None:
    repeat = random_repeat(1, sense=True)
    assert len(task_slices(repeat, break_down(repeat).select(np.zeros(0, np.int64)))) == 0


def test_intervals_of_a_lane_do_not_overlap_and_there_are_no_more_lanes_than_needed() -> None:
    chance = np.random.default_rng(1)
    row, start = chance.integers(0, 3, 200), chance.uniform(0, 10, 200)
    stop = start + chance.exponential(0.5, 200)
    lane = assign_lanes(row, start, stop)
    for member in range(3):
        mine = row == member
        for number in range(lane[mine].max() + 1):
            chosen = np.flatnonzero(mine & (lane == number))
            ends = sorted(zip(start[chosen], stop[chosen], strict=True))
            assert all(before[1] <= after[0] for before, after in pairwise(ends))
        most = max(((start[mine] <= time) & (stop[mine] > time)).sum() for time in start[mine])
        assert lane[mine].max() + 1 == most


def test_arrows_go_through_the_fetch_that_was_in_time() -> None:
    moved = moved_results(by_hand())
    assert (moved.task_to_fetch, moved.fetch_to_task) == ([(0, 0)], [(0, 1)])
