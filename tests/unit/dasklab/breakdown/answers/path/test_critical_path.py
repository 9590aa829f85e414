"""The critical path covers the repeat, and follows what was waited for."""

from __future__ import annotations

from dasklab.breakdown.answers.path.critical_path import critical_path
from dasklab.breakdown.model.causes import CAUSES, COMPUTE, LAG, RESULT, UNDIVIDED, USER, WIRE, Cause
from dasklab.breakdown.model.repeat import Repeat
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.dasklab.breakdown.assign.test_threads import assert_covers
from tests.unit.dasklab.breakdown.timelines import by_hand, make_repeat, random_repeat, task


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10**9), st.booleans())
def test_the_path_goes_from_start_to_end(seed: int, sense: bool) -> None:
    repeat = random_repeat(seed, sense)
    assert_covers(critical_path(repeat), repeat.start, repeat.stop)


def rows(repeat: Repeat) -> list[tuple[float, float, Cause, str]]:
    path = critical_path(repeat)
    keys = [repeat.keys[repeat.tasks.key[row]] if row >= 0 else "" for row in path.task.tolist()]
    columns = zip(path.start.round(6), path.stop.round(6), path.cause.tolist(), keys, strict=True)
    return [(start, stop, CAUSES[code], key) for start, stop, code, key in columns]


def test_the_path_by_hand_is_the_whole_story() -> None:
    path = rows(by_hand())
    assert (path[0][0], path[0][2]) == (0.0, USER)
    assert (1.0, 3.0, COMPUTE, "a") in path
    assert (5.2, 7.0, WIRE, "b") in path
    assert path[-1] == (9.4, 10.0, RESULT, "")


def test_a_task_that_waits_for_its_thread_waits_for_the_task_that_runs_there() -> None:
    before = task("c", "worker-2", 2, 2.0, 7.8, decided=0.5)
    path = rows(by_hand(more=[before]))
    assert (2.0, 7.8, COMPUTE, "c") in path
    assert (7.8, 7.9, LAG, "b") in path


def test_a_task_of_a_worker_that_died_waits_for_the_task_before_it_on_its_thread() -> None:
    """Nobody knows since when it could have run, only when the scheduler had sent it."""
    first = task("first", "worker-1", 1, 1.0, 4.0, decided=0.5, handled=4.1)
    last = task("last", "worker-1", 1, 4.1, 8.0, decided=1.1, sent=1.1, handled=8.0)
    path = rows(make_repeat([first, last], unfinished=[(0.5, 2), (8.0, 0)]))
    assert (1.0, 4.0, COMPUTE, "first") in path
    assert (4.1, 8.0, COMPUTE, "last") in path


def test_stamps_that_contradict_each_other_do_not_end_the_path() -> None:
    """``b`` was triggered by ``a``, which its thread ran after ``b``: a circle. Before both ran ``first``."""
    first = task("first", "worker-1", 1, 1.0, 3.0, decided=0.9, handled=3.2)
    a = task("a", "worker-1", 1, 5.2, 5.3, ready=4.0, decided=4.0, handled=4.9)
    b = task("b", "worker-1", 1, 5.0, 5.1, ready=5.0, decided=4.95, handled=5.2, trigger="a")
    path = rows(make_repeat([first, a, b], stop=6.0, unfinished=[(0.5, 3), (5.3, 0)]))
    assert (1.0, 3.0, COMPUTE, "first") in path


def test_a_queue_elsewhere_does_not_say_what_the_path_waited_for() -> None:
    """``b`` was chosen at 5 for no known reason, while worker-2 had a task too many."""
    a = task("a", "worker-1", 1, 0.0, 1.0, decided=0.0, handled=1.0)
    b = task("b", "worker-1", 1, 5.1, 9.0, decided=5.0, handled=9.0)
    others = [task(f"c-{n}", "worker-2", 2, 4.0 * n, 4.0 * n + 4, decided=0.0) for n in range(2)]
    repeat = make_repeat([a, b, *others], unfinished=[(0.0, 4), (9.0, 0)])
    path = critical_path(repeat)
    causes = {CAUSES[code] for code in path.cause[(path.start >= 1.0) & (path.stop <= 5.0)].tolist()}
    assert causes == {UNDIVIDED}
