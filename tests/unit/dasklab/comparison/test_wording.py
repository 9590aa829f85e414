"""What differs between two sides, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dasklab.breakdown.model.causes import COMPUTING, LINK, Bottleneck
from dasklab.comparison import wording
from dasklab.comparison.causes import causes
from dasklab.comparison.difference import Difference
from dasklab.results.statistics.inference import Estimate

from tests.unit.dasklab.breakdown.summaries import NEW, OLD, PAIR

CHANGE = Difference(OLD, NEW)


def sentence(error: float, *, shown: bool = True, several: bool = True, change: Difference = CHANGE) -> str:
    def estimate(_: Bottleneck) -> Estimate:
        return Estimate(0.0, error, 10) if several else Estimate(0.0)

    return wording.sentence(causes(change, estimate, shown if several else None))


def test_a_cause_has_an_interval() -> None:
    assert sentence(0.1) == (
        "+3.70 s (4.00 to 7.70 s): on the critical path +3.70 s (+3.48 to +3.92) the wire (worker-3)."
    )


def test_only_a_difference_that_is_shown_has_causes() -> None:
    assert sentence(0.1, shown=False) == "+3.70 s (4.00 to 7.70 s): no difference shown."
    assert sentence(5.0) == "+3.70 s (4.00 to 7.70 s): no cause differs by more than the noise."


def test_comparisons_without_a_difference_share_a_sentence() -> None:
    compared = [
        causes(CHANGE, lambda _: Estimate(0.0, 0.1, 10), is_shown) for is_shown in (False, True, False)
    ]
    slower, alike = wording.sentences(dict(zip(("E1000", "veth", "RTL8139"), compared, strict=True)))
    assert slower.startswith("veth: +3.70 s") and alike == "No difference shown: E1000 and RTL8139."


def test_single_records_are_described_and_may_be_chance() -> None:
    assert sentence(0.1, several=False) == (
        "+3.70 s (4.00 to 7.70 s): on the critical path +3.70 s the wire (worker-3). " + wording.SINGLE
    )


def test_causes_that_were_recorded_once_have_no_intervals() -> None:
    text = wording.sentence(causes(CHANGE, lambda _: Estimate(0.0), is_time_shown=True))
    assert "+3.70 s the wire (worker-3). " + wording.ONE_RECORD in text


def test_a_table_ends_with_the_difference_of_the_makespans() -> None:
    *_, last = wording.rows(CHANGE)
    assert last[1:5] == ("4.00", "7.70", "+3.70", "+3.70")


@pytest.mark.parametrize("several", [True, False])
def test_short_runs_have_three_digits(several: bool) -> None:
    short = replace(OLD, makespan_s=0.0412)
    longer = Difference(short, replace(short, makespan_s=0.0512))
    assert sentence(0.1, several=several, change=longer).startswith("+0.0100 s (0.0412 to 0.0512 s)")


@pytest.mark.parametrize(
    ("error", "main"),
    [
        (0.01, "+3.70 s (+3.68 to +3.72) the wire (worker-3)"),
        (
            0.2,
            "+3.70 s (+3.25 to +4.15) the wire (worker-3) and +3.40 s (+2.95 to +3.85) computing (worker-1)"
            " (too close to tell which is more)",
        ),
    ],
)
def test_causes_that_cannot_be_told_apart_are_named_together(error: float, main: str) -> None:
    new = replace(NEW, makespan_s=11.1, bottlenecks={(COMPUTING, "worker-1"): 7.4, (LINK, PAIR): 3.7})
    found = causes(Difference(OLD, new), lambda _: Estimate(0.0, error, 10), is_time_shown=True)
    assert wording.main_cause(found) == main
    assert f"on the critical path {main}" in wording.sentence(found)


def test_a_small_cause_is_not_the_main_one_where_chance_explains_the_largest() -> None:
    new = replace(NEW, makespan_s=7.9, bottlenecks={(COMPUTING, "worker-1"): 4.2, (LINK, PAIR): 3.7})

    def estimate(bottleneck: Bottleneck) -> Estimate:
        return Estimate(0.0, 0.01 if bottleneck is COMPUTING else 5.0, 10)

    found = causes(Difference(OLD, new), estimate, is_time_shown=True)
    assert [change.bottleneck for change in found.shown] == [COMPUTING] and wording.main_cause(found) == ""
