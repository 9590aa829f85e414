"""What the client waits for: its own tasks as far as evidence says so; then, and only then, results."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from dasklab.breakdown.answers.path.critical_path import critical_path
from dasklab.breakdown.assign.client_waits import client_waits
from dasklab.breakdown.model.causes import ANSWER, COMPUTE, GATHER, RESULT, UNDIVIDED, Cause
from dasklab.breakdown.model.repeat import Repeat

from tests.unit.dasklab.breakdown.timelines import Row, make_repeat, task


def call(kind: str, start: float, stop: float) -> Row:
    return {"kind": kind, "start_s": start, "stop_s": stop}


def waiting_line(start: float, stop: float, number: int = 1) -> Row:
    return {"start_s": start, "stop_s": stop, "waits": 1, "file": "a.py", "line": number, "code": ""}


def one_task(
    start: float,
    stop: float,
    handled: float,
    calls: Sequence[Row],
    lines: Sequence[Row] = (),
    end: float = 10.0,
) -> Repeat:
    """A task that the scheduler knew from its start on, and calls and lines of the client."""
    tasks = [task("a", "worker-1", 1, start, stop, decided=start, handled=handled)]
    unfinished = [(start, 1), (handled, 0)]
    return make_repeat(
        tasks,
        stop=end,
        threads={"worker-1": 1},
        unfinished=unfinished,
        tables={"calls": calls, "lines": lines},
    )


def on_path(repeat: Repeat, cause: Cause) -> float:
    path = critical_path(repeat)
    return float(path.seconds[path.is_cause(cause)].sum())


def test_line_before_the_one_that_sends_tasks_waited_for_none_of_them() -> None:
    """``wait_for_workers``, then a gather; where the first line ends is only known to half of 50 ms."""
    lines = [waiting_line(0.0, 5.02), waiting_line(5.02, 6.0, 2)]
    repeat = one_task(5.01, 5.03, 5.04, [call("sync", 5.0, 6.0)], lines, end=6.0)
    assert on_path(repeat, ANSWER) == pytest.approx(5.0, abs=0.05)
    assert on_path(repeat, RESULT) == pytest.approx(0.96)


def test_wait_for_what_is_not_the_clients_brings_no_results() -> None:
    """The line of the next call seems to begin before the call that waited for the task has returned."""
    lines = [waiting_line(0.0, 3.0), waiting_line(3.0, 10.0, 2)]
    repeat = one_task(1.0, 3.005, 3.006, [call("sync", 0.0, 3.01), call("sync", 3.02, 10.0)], lines)
    assert on_path(repeat, ANSWER) == pytest.approx(1.0 + 6.98, abs=0.05)
    assert on_path(repeat, RESULT) < 0.05


def test_results_are_on_their_way_only_after_the_last_task() -> None:
    repeat = one_task(4.0, 6.0, 6.5, [call("sync", 0.0, 10.0)])
    assert on_path(repeat, RESULT) == 3.5 and on_path(repeat, ANSWER) == 4.0


def test_call_that_never_returned_leaves_unknown_what_it_waited_for() -> None:
    """The client was closed in the call: what came after the last task that is known, nobody recorded."""
    path = one_task(1.0, 6.0, 6.5, [call("sync", 0.0, 15.0)])
    assert on_path(path, COMPUTE) == 5.0 and on_path(path, UNDIVIDED) == 3.5
    assert on_path(path, RESULT) == on_path(path, ANSWER) - 1.0 == 0.0


def test_call_that_gathers_waited_for_no_task_that_ended_later() -> None:
    """The client waits for `urgent`; `other` ends while the result moves, and nobody waits for it."""
    tasks = [
        task("other", "worker-1", 1, 1.0, 6.1, handled=6.2),
        task("urgent", "worker-2", 1, 1.0, 6.0, handled=6.05),
    ]
    calls = [call("sync", 0.5, 7.0), call("gather", 6.1, 6.9)]
    repeat = make_repeat(tasks, stop=7.0, tables={"calls": calls})
    waits = client_waits(repeat)
    assert [repeat.keys[repeat.tasks.key[row]] for row in waits.task.tolist()] == ["urgent"]
    assert on_path(repeat, GATHER) == pytest.approx(0.8)


@pytest.mark.parametrize(("missing", "waited"), [(0, False), (1, True), (float("nan"), True)])
def test_call_for_results_that_were_there_waited_for_no_task(missing: float, waited: bool) -> None:
    """The result of an earlier task moves; the scheduler hears meanwhile that another one has ended."""
    calls = [call("sync", 5.0, 7.0) | {"missing": missing}, call("gather", 5.9, 6.8)]
    assert bool(len(client_waits(one_task(1.0, 5.1, 5.2, calls)).task)) == waited
