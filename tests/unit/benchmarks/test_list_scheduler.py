"""A list scheduler without a network takes what threads and dependencies make necessary."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.support.list_scheduler import predict_s, recorded_repeat, schedule_s

DATA = Path(__file__).parents[2] / "data" / "records"


@pytest.mark.parametrize(("threads", "seconds"), [(1, 7), (2, 5), (3, 4), (9, 4)])
def test_tasks_wait_for_threads_and_for_what_they_need(threads: int, seconds: float) -> None:
    assert schedule_s([1, 2, 1, 3], [[], [], [], [0]], threads) == seconds


def test_task_that_becomes_ready_takes_its_place_in_the_order() -> None:
    assert schedule_s([1, 1, 1, 5], [[], [0], [], []], 1) == 8
    assert schedule_s([2, 1, 5], [[], [0], []], 2) == 5


def test_block_takes_no_longer_on_more_threads_and_keeps_the_clients_time() -> None:
    repeat = recorded_repeat(DATA / "queue")
    seconds = [predict_s(repeat, threads) for threads in (1, 2, 1000)]
    assert seconds == sorted(seconds, reverse=True)
    assert 0 < seconds[-1] <= repeat.makespan * 1.01
