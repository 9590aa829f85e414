"""The table of stages is a chain, the documentation shows it, and every cause is registered and explained."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from dasklab.breakdown.answers.stage_lengths import stage_lengths
from dasklab.breakdown.model.causes import BOTTLENECKS, CAUSES, Cause
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.model.stages import (
    DUE_STAMPS,
    SCHEDULER_CHOICE,
    STAGES,
    STAMPS,
    Process,
    Rule,
    Stage,
    clock_of,
)
from dasklab.breakdown.show import wording
from dasklab.paths import SHARE

from tests.unit.dasklab.breakdown.timelines import Row, by_hand, make_repeat, task

DOCUMENT = SHARE / "docs" / "explanation" / "time-breakdown.md"


def test_each_stage_begins_where_the_one_before_ends() -> None:
    for earlier, later in pairwise(STAGES):
        assert later.start == earlier.stop
    assert (SCHEDULER_CHOICE.start, SCHEDULER_CHOICE.stop) == (STAGES[-1].stop, STAGES[0].start)
    assert list(STAMPS) == [STAGES[0].start, *(stage.stop for stage in STAGES)]


def test_stamps_come_from_the_process_that_has_the_task() -> None:
    by_scheduler = {stamp for stamp in (*STAMPS, *DUE_STAMPS) if clock_of(stamp) is Process.SCHEDULER}
    assert by_scheduler == {"decided", "due", "sent", "handled"}


@pytest.mark.parametrize(
    "stage", [*STAGES, SCHEDULER_CHOICE], ids=lambda stage: f"{stage.start}-{stage.stop}"
)
def test_a_rule_has_the_causes_that_it_divides_time_among(stage: Stage) -> None:
    expected = {Rule.WHOLE: 1, Rule.SEND_TIMER: 2, Rule.MESSAGE: 3, Rule.DATA: 5}
    assert len(stage.causes) == expected[stage.rule]
    assert (stage.rule is Rule.SEND_TIMER) == bool(stage.due)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_a_cause_is_registered_with_all_that_is_said_about_it(cause: Cause) -> None:
    assert CAUSES[cause.code] is cause
    assert cause.bottleneck in BOTTLENECKS
    assert cause.title and cause.explanation.endswith(".")
    assert sum(cause.colour == other.colour or cause.title == other.title for other in CAUSES) == 1


def test_lengths_of_stages_add_up() -> None:
    repeat = by_hand()
    only_b = make_repeat([_row(repeat, "b")], stop=repeat.stop)
    *lengths, together = [stage.median_ms for stage in stage_lengths([only_b])]
    assert lengths == pytest.approx([500, 300, 3000, 400, 100, 1000, 100, 100, 200])
    assert together == pytest.approx(sum(lengths))


def _row(repeat: Repeat, key: str) -> Row:
    index = repeat.tasks.key.tolist().index(repeat.keys.index(key))
    stamps = {name: float(values[index]) for name, values in repeat.tasks.stamps.items()}
    start, stop = stamps.pop("start"), stamps.pop("stop")
    return task(key, "worker-2", 2, start, stop, **stamps)


def test_stages_that_were_not_recorded_are_left_out() -> None:
    missing = {"sent_s": None}
    assert len(list(wording.stage_rows([by_hand(missing, missing)]))) == len(STAGES) - 1
    assert np.isnan(by_hand(missing).tasks.stamps["sent"]).any()
