"""The run is what the user ran: a block from its begin to its end, or what other programs computed."""

from __future__ import annotations

from pathlib import Path

import pytest
from dasklab.breakdown.model.causes import (
    ANSWER,
    BETWEEN,
    COMPUTE,
    EXTERNAL,
    NO_WORKER,
    PLAN,
    RESULT,
    UNDIVIDED,
    USER,
)
from dasklab.breakdown.model.repeat import Extent
from dasklab.breakdown.show.explain import Explained, explain
from dasklab.results.run import Trial

RECORDS = Path(__file__).parents[4] / "data" / "records"


def explained(name: str) -> Explained:
    return explain(Trial(RECORDS / name))


def test_client_code_before_and_after_its_computations_belongs_to_the_run() -> None:
    record = explained("before_and_after")
    assert record.timed[0].extent is Extent.BLOCK
    assert record.summary.makespan_s == pytest.approx(7.04, abs=0.02)
    assert record.summary.path_by_cause[USER] == pytest.approx(6.0, abs=0.05)


def test_path_of_programs_that_were_not_recorded_follows_their_tasks() -> None:
    record = explained("shell_record_path")
    assert record.timed[0].extent is Extent.WATCHED
    assert USER not in record.summary.by_cause and USER not in record.summary.path_by_cause
    assert record.summary.path_by_cause[BETWEEN] == pytest.approx(0.12, abs=0.05)


def test_time_between_a_graph_and_its_first_task_is_not_all_preparation() -> None:
    path = explained("noworkers").summary.path_by_cause
    assert path[NO_WORKER] == pytest.approx(4.57, abs=0.1)
    assert path[PLAN] < 0.1 and path.get(UNDIVIDED, 0.0) < 0.1


def test_call_that_waits_for_no_task_brings_no_results() -> None:
    """``client.restart()`` within the block, while no worker is there most of the time."""
    path = explained("restart_inside").summary.path_by_cause
    assert path[ANSWER] + path[NO_WORKER] == pytest.approx(5.5, abs=0.2)
    assert path.get(RESULT, 0.0) < 0.1


@pytest.mark.parametrize("name", ["interrupted_is_computing", "killedworker"])
def test_tasks_that_slept_on_a_worker_that_nobody_asked_do_not_compute(name: str) -> None:
    by_cause = explained(name).summary.by_cause
    assert by_cause.get(COMPUTE, 0.0) < 0.1 < by_cause[EXTERNAL]
