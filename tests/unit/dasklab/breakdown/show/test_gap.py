"""The sentence about what a record lacks: nothing, its end, or nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.explain import gap
from dasklab.breakdown.show.gaps import gaps
from dasklab.records.document import Record

from tests.unit.dasklab.breakdown.timelines import Row, make_repeat, task

GRAPH = {"begin_s": 0.0, "sent_s": 0.1, "received_s": 0.2, "materialise_s": 0.0, "order_s": 0.0,
         "state_s": 0.0, "tasks": 1, "nbytes": 8.0}  # fmt: skip
WHOLE = Record(form=2, client="c", start=100.0, stop=109.0, lost={}, failures={}, complete=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"complete": None}, "It is unknown whether this record is complete"),
        ({"complete": False}, "The recording was cut off. What follows is only the part that was kept."),
        ({"complete": False, "complete_until": 104.25}, "The recording was cut off at 1970-01-"),
        ({"complete": False, "complete_until": 104.25}, ", after 4.2 s. What follows is only that part."),
        ({"complete": False, "beyond_limit": {"tasks": 3}}, "The recording reached its size limit. "),
    ],
)
def test_gap_is_named(changes: dict[str, Any], words: str) -> None:
    assert words in gap(replace(WHOLE, **changes))


def test_whole_record_has_no_gap() -> None:
    assert gap(WHOLE) == "" and not list(gaps(WHOLE, whole_repeat()))


def whole_repeat(
    arrived: float | None = 0.5, graphs: Sequence[Row] = (GRAPH,), waiting_s: float = 0.1
) -> Repeat:
    use = {"node": "worker-1", "cpu_s": 0.5, "loop_waiting_s": 0.0}
    cpu = [use | {"time_s": time, "waiting_s": waiting_s * time} for time in (0.0, 10.0)]
    spin = task("spin-1", "worker-1", 1, 1.0, 9.0, arrived=arrived)
    return make_repeat([spin], threads={"worker-1": 1}, graphs=graphs, tables={"cpu": cpu})


@pytest.mark.parametrize(
    ("changes", "repeat", "words"),
    [
        ({"lost": {"scheduler": 1000, "worker-1": 200}}, whole_repeat(),
         "1,200 rows of scheduler and worker-1 were dropped"),
        ({"failures": {"tcp://w:1: attach: Python 3.9 instead of 3.11": 1}}, whole_repeat(),
         "tcp://w:1 was not recorded (Python 3.9 instead of 3.11)"),
        ({}, whole_repeat(arrived=None), "worker-1 sent no records"),
        ({}, whole_repeat(waiting_s=float("nan")), "How long threads of worker-1 waited for a CPU"),
        ({}, whole_repeat(graphs=()), "No arrival of a graph was recorded"),
    ],
)  # fmt: skip
def test_what_was_not_recorded_is_said(changes: dict[str, Any], repeat: Repeat, words: str) -> None:
    (sentence,) = gaps(replace(WHOLE, **changes), repeat)
    assert sentence.startswith(words)
