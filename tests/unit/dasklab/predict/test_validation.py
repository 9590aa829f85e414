"""Intervals include the prediction error, and scenarios unlike all validated cases are reported."""

from __future__ import annotations

import pytest
from dasklab.predict.prediction import summarize
from dasklab.predict.validation import Case, Validated, ValidatedRecords, near, replace_block

from tests.unit.dasklab.sim.samples import MACHINES, scenario

SCENARIO = scenario(rates_mbit=dict.fromkeys(MACHINES, 100.0))
ERRORS = (0.1, -0.2, 0.05, 0.0, 0.1, 0.02, 0.03, 0.3, 0.1, -0.05, 0.1)
VALIDATED = Validated(cases=tuple(Case.of(SCENARIO, error) for error in ERRORS))


def test_interval_is_widened_by_the_error_that_90_percent_of_the_cases_stay_below() -> None:
    assert VALIDATED.prediction_error == pytest.approx(0.2)
    wide = VALIDATED.widened(summarize("x", [4.0, 4.0], [0.0, 0.0], simulated=True))
    assert (wide.mean_s, wide.low_s, wide.high_s) == (4.0, pytest.approx(4 / 1.2), pytest.approx(4.8))


def test_records_count_predictions_that_are_too_short_as_factors() -> None:
    halves = ValidatedRecords(cases=tuple(Case.of(SCENARIO, -0.5) for _ in range(10)))
    assert halves.prediction_error == pytest.approx(1)  # the measured time was twice the predicted one
    other_program = SCENARIO.model_copy(update={"rtt_ms": 20.0})
    assert list(halves.outside(other_program)) == ["delay_ms 10 (validated: 0)"]


def test_scenario_like_a_case_is_inside() -> None:
    assert list(VALIDATED.outside(SCENARIO)) == []
    assert list(VALIDATED.outside(SCENARIO.model_copy(update={"workers": 4}))) == []  # close to three


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"workers": 64}, "workers 64 (validated: 3)"),
        ({"bridge": "flooding"}, "bridge flooding (validated: learning)"),
        ({"rates_mbit": dict.fromkeys(MACHINES, 1000.0)}, "rate_mbit 1,000 (validated: 100)"),
        ({"links": {"worker-1": {"delay_ms": 2}}}, "delay_ms 2 (validated: 0)"),
        ({"links": {"scheduler": {"loss_pct": 1}}}, "loss_pct 1 (validated: 0)"),
        ({"workload": {"name": "merge"}}, "workload merge (validated: array_study)"),
        ({"cores": 2}, "cores 2 shared (validated: own)"),
        ({"racks": [{"workers": 3}]}, "racks (validated: none)"),
    ],
)
def test_scenario_unlike_all_cases_is_outside(changes: dict[str, object], phrase: str) -> None:
    settings = {"rates_mbit": dict.fromkeys(MACHINES, 100.0)} | changes
    assert list(VALIDATED.outside(scenario(**settings))) == [phrase]


def test_faster_than_uncapped_links_is_inside_but_faster_than_a_cap_is_outside() -> None:
    # The uncapped links of one lab had 20 Gbit/s, another lab's have 60: neither limits the throughput
    uncapped = Validated(cases=(Case.of(scenario(rates_mbit=dict.fromkeys(MACHINES, 20_000.0)), 0.1),))
    assert list(uncapped.outside(scenario(rates_mbit=dict.fromkeys(MACHINES, 60_000.0)))) == []
    assert list(uncapped.outside(scenario(rates_mbit={}))) == []
    assert list(VALIDATED.outside(scenario(rates_mbit={}))) == ["rate_mbit 100,000 (validated: 100)"]


def test_without_cases_everything_is_outside() -> None:
    assert Validated().prediction_error == 0
    assert "workers 3 (validated: none)" in list(Validated().outside(SCENARIO))
    assert not near(1.0, [])


def test_stored_cases_can_be_read() -> None:
    assert Validated.read().cases


def block(script: str, text: str) -> str:
    return f"<!-- by {script} --keep -->\n{text}\n<!-- end -->\n"


def test_only_the_block_of_the_benchmark_is_replaced() -> None:
    old, new, other = block("one.py", "old"), block("one.py", "new"), block("other.py", "its own")
    assert replace_block(f"a\n{old}b\n{other}c\n", "one.py", "new") == f"a\n{new}b\n{other}c\n"
    assert replace_block(f"a\n{other}b\n{old}c\n", "one.py", "new") == f"a\n{other}b\n{new}c\n"


@pytest.mark.parametrize("markdown", ["", "<!-- by one.py --keep -->\nold\n"])
def test_document_without_the_block_is_refused(markdown: str) -> None:
    with pytest.raises(ValueError, match=r"by one\.py --keep"):
        replace_block(markdown, "one.py", "new")
