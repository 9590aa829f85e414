"""Answers on experiments whose truth is known: coverage, false differences, power, and like with like."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from dasklab.report.words import sentences
from dasklab.report.words.levels import cell_label
from dasklab.results import load
from dasklab.results.statistics.answers import answer, answers, error_rates
from dasklab.results.statistics.inference import ALPHA
from dasklab.running.driver import driver
from dasklab.running.driver.more_blocks import width

from tests.unit.dasklab.conftest import FakeLab, Json
from tests.unit.dasklab.results.frames import experiments, one_factor, two_workloads

Measure = Callable[..., driver.ActiveRun]
FACTORS = ["work", "rate_mbit"]


def sloped(trial: Json) -> float:
    return 4.0 + 0.02 * float(trial["factors"]["delay_ms"])


def test_intervals_cover_the_truth_though_runs_share_their_trial() -> None:
    """Two blocks of three repeats. If repeats counted as independent, 29 % of the intervals would miss it."""
    cells = [result.cells[1] for result in experiments(60)]
    misses = sum(cell.ratio.excludes(1) for cell in cells) / len(cells)
    assert misses <= 0.12


def test_no_difference_is_shown_where_there_is_none() -> None:
    results = experiments(50, levels=5, between=0.1)
    assert sum(any(cell.is_shown for cell in result.cells) for result in results) / len(results) <= 0.1


def test_difference_of_30_pct_is_shown_with_three_blocks() -> None:
    results = experiments(40, levels=4, blocks=3, repeats=2, effect=math.log(1.3))
    assert sum(result.cells[1].is_shown for result in results) >= 32


def test_more_runs_of_the_same_trials_add_little() -> None:
    few, many = (
        np.median([result.cells[1].ratio.high for result in experiments(40, repeats=runs)])
        for runs in (3, 30)
    )
    assert many > 1 + 0.7 * (few - 1)


def test_one_block_shows_nothing_however_large_the_difference() -> None:
    [result] = experiments(1, blocks=1, effect=math.log(10))
    cell = result.cells[1]
    assert cell.ratio.value > 8 and math.isnan(cell.ratio.low) and not cell.is_shown


def test_values_that_never_vary_are_shown_if_they_differ() -> None:
    """Every trial may move exactly the same number of bytes."""
    table = one_factor(np.random.default_rng(1), blocks=3, effect=0.1)
    table["value"] = [1.54 if level == "1" else 1.0 for level in table.level]
    result = answers(table, ["compute_s"])["compute_s"]
    assert result and result.cells[1].is_shown and result.cells[1].ratio.value == pytest.approx(1.54)
    table["value"] = 1.0
    result = answers(table, ["compute_s"])["compute_s"]
    assert result and not result.cells[1].is_shown


def test_first_metric_has_most_of_the_error_rate() -> None:
    rates = error_rates(["compute_s", "transfer_mb", "rtt_ms"])
    assert sum(rates.values()) == pytest.approx(ALPHA)
    assert rates["compute_s"] > 0.7 * ALPHA and error_rates(["rtt_ms"]) == {"rtt_ms": ALPHA}


def test_width_is_that_of_the_widest_interval() -> None:
    random = np.random.default_rng(1)
    narrow, wide = (width(one_factor(random, blocks=blocks), ["compute_s"]) for blocks in (8, 2))
    assert 0 < narrow < wide
    assert math.isinf(width(one_factor(random, blocks=1), ["compute_s"]))


def test_slope_and_verdicts_of_a_delay_sweep(measured: Measure) -> None:
    result = answer(load(measured(FakeLab(sloped)).stored.folder), "compute_s", ["delay_ms"])
    assert result is not None and result.null is not None
    assert [cell.is_shown for cell in result.cells] == [False, True, True]
    assert result.cells[2].ratio.value == pytest.approx(2, rel=0.02)
    assert result.slopes["delay_ms"].low < 0.02 < result.slopes["delay_ms"].high
    assert result.null.low < 0 < result.null.high


def test_equal_cells_show_no_difference(measured: Measure) -> None:
    result = answer(load(measured(FakeLab()).stored.folder), "compute_s", ["delay_ms"])
    assert result is not None and not any(cell.is_shown for cell in result.cells)


def test_invalid_trials_leave_the_statistics(measured: Measure) -> None:
    def break_link(trial: Json, files: Json) -> int:
        if trial["cell"] == "delay_ms=200":
            files["measured.json"]["rtt"][0]["samples_ms"] = [1.0] * 10
        return 0

    result = answer(load(measured(FakeLab(spoil=break_link)).stored.folder), "compute_s", ["delay_ms"])
    assert result is not None and [cell.name for cell in result.cells] == ["delay_ms=0", "delay_ms=50"]


def test_each_workload_is_compared_with_its_own_baseline() -> None:
    result = answer(two_workloads(), "compute_s", FACTORS)
    assert result is not None and result.kinds == ("work",)
    by_cell = {cell.name: (cell.baseline, cell.ratio.value, cell.is_shown) for cell in result.cells}
    assert by_cell == {
        "work=merge,rate_mbit=0": (True, 1.0, False),
        "work=merge,rate_mbit=50": (False, pytest.approx(2.0, rel=0.03), True),
        "work=groupby,rate_mbit=0": (True, 1.0, False),
        "work=groupby,rate_mbit=50": (False, pytest.approx(1.5, rel=0.01), True),
    }
    assert result.baseline(result.cells[3]) is result.cells[2]
    text = sentences.sentence(result, {})
    assert "50 Mbit/s of rate, groupby: " in text and "at its own baseline" in text
    assert [cell_label(result, cell, {}) for cell in result.cells] == [
        "baseline, merge",
        "50 Mbit/s of rate, merge",
        "baseline, groupby",
        "50 Mbit/s of rate, groupby",
    ]


def test_noise_is_the_same_share_of_every_baseline() -> None:
    frame = two_workloads()
    frame.loc[frame.null, "value"] *= frame.block.map({1: 1.1, 2: 0.9, 3: 1.0})[frame.null]
    slow = frame.cell == "work=groupby,rate_mbit=50"
    frame.loc[slow, "value"] *= 10.5 / 15  # a difference of 5 %, of which the null trial shows 10 % as noise
    result = answer(frame, "compute_s", FACTORS)
    assert result is not None and not result.cells[3].is_shown


def test_workload_without_a_baseline_is_compared_with_nothing() -> None:
    frame = two_workloads()
    result = answer(frame[frame.cell != "work=groupby,rate_mbit=0"], "compute_s", FACTORS)
    assert result is not None
    alone = result.cells[2]
    assert math.isnan(alone.ratio.value) and not alone.is_shown
    assert alone.median.value == pytest.approx(15.0, rel=0.01)


GUESTS = {"level=0": "vm", "level=1": "vm", "level=2": "container", "level=3": "container"}


def test_machines_and_containers_have_baselines_of_their_own() -> None:
    """Level 1 is x 2 of the machines' baseline; containers take a twentieth of the time at both levels."""
    frame = one_factor(np.random.default_rng(3), levels=4, blocks=4, effect=math.log(2), between=0.02)
    containers = frame.level.isin(["2", "3"])
    frame.loc[containers, "value"] /= 20
    frame.attrs["guests"] = GUESTS
    result = answer(frame, "compute_s", ["level"])
    assert result is not None
    cells = {cell.name: cell for cell in result.cells}
    assert [name for name, cell in cells.items() if cell.is_shown] == ["level=1"]
    assert cells["level=2"].baseline and result.baseline(cells["level=3"]) is cells["level=2"]
    text = sentences.sentence(result, {})
    assert text.startswith("Level 1: the time to compute is") and "x 0.0" not in text
    assert text.endswith("Machines and containers are compared with a baseline of their own kind.")


@pytest.mark.parametrize(("times", "has_ratio"), [(20, True), (300, False)])
def test_ratio_that_nobody_can_imagine_is_left_out(times: float, has_ratio: bool) -> None:
    frame = one_factor(np.random.default_rng(3), levels=2, blocks=4, effect=math.log(times), between=0.02)
    text = sentences.sentence(answer(frame, "compute_s", ["level"]), {})
    assert " instead of " in text and (", x " in text) == has_ratio


def test_one_cell_of_each_kind_of_guest_asks_how_they_differ() -> None:
    frame = one_factor(np.random.default_rng(3), levels=2, blocks=4, effect=math.log(2), between=0.02)
    frame.attrs["guests"] = {"level=0": "vm", "level=1": "container"}
    result = answer(frame, "compute_s", ["level"])
    assert result is not None and [cell.is_shown for cell in result.cells] == [False, True]
