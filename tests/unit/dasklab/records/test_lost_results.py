"""Which results count as lost."""

from __future__ import annotations

import pytest
from dasklab.records.recorder.base import Owner
from dasklab.records.recorder.layout import SCHEDULER
from dasklab.records.recorder.privacy import Privacy
from dasklab.records.recorder.scheduler import NOT_LOST, SchedulerRecorder
from dasklab.records.recorder.store import Store


@pytest.mark.parametrize(("reason", "rows"), [*((reason, 0) for reason in NOT_LOST), ("worker-failed", 1)])
def test_a_result_that_nobody_needs_any_more_costs_no_row(reason: str, rows: int) -> None:
    owner = Owner("record", "client", "process", "a test", frozenset())
    recorder = SchedulerRecorder(owner, Privacy(), 1.0)
    recorder.store, recorder.open, recorder.ended = Store(SCHEDULER, 10), {}, ("", "")
    recorder.transition("x-1", "memory", "released", stimulus_id=f"{reason}-1234.5")
    assert not recorder.store.failures
    assert [row[1:] for row in recorder.store.logs["events"].rows] == [("lost", "x-1", reason)][:rows]
