"""Statistics on experiments whose truth is known: coverage, false differences, power, and silence."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from dasklab.model.experiment import Tolerances
from dasklab.model.files import Hosts
from dasklab.results.statistics import reasons
from dasklab.results.statistics.answer import Answer
from dasklab.results.statistics.answers import answer, answers, error_rates
from dasklab.results.statistics.inference import ALPHA, Fit, holm
from dasklab.results.validity import node
from dasklab.running.more_blocks import width

WITHIN, BETWEEN, DRIFT = 0.059, 0.067, 0.1  # measured on containers: compute_s


def frame(
    dice: np.random.Generator,
    levels: int = 2,
    blocks: int = 2,
    runs: int = 3,
    effect: float = 0.0,
    between: float = BETWEEN,
) -> pd.DataFrame:
    """An experiment's table: runs share what their trial adds, level 1 takes exp(effect)."""
    rows = []
    for block in range(blocks):
        drift = dice.normal(0, DRIFT)
        for level, null in [*((level, False) for level in range(levels)), (0, True)]:
            usual = drift + effect * (level == 1) + dice.normal(0, between)
            for value in np.exp(usual + dice.normal(0, WITHIN, runs)):
                rows.append((block, level, level == 0 and not null, null, value))
    found = pd.DataFrame(rows, columns=["block", "level", "baseline", "null", "value"])
    same = {"metric": "compute_s", "warmup": False, "status": "ok", "tested": True, "prediction_error": 0.0}
    found = found.assign(cell="level=" + found.level.astype(str), src="", dst="", workload="w", **same)
    found["level"] = found.level.astype(str)
    found.attrs["factors"] = ["level"]
    return found


def experiments(count: int, **design: float) -> list[Answer]:
    dice = np.random.default_rng(7)
    found = [answer(frame(dice, **design), "compute_s", ["level"]) for _ in range(count)]
    return [each for each in found if each]


def test_intervals_cover_the_truth_though_runs_share_their_trial() -> None:
    """Two blocks of three runs: drawn anew run by run, 29 % of the intervals missed it."""
    cells = [each.cells[1] for each in experiments(60)]
    missed = sum(cell.ratio.excludes(1) for cell in cells) / len(cells)
    assert missed <= 0.12


def test_no_difference_is_shown_where_there_is_none() -> None:
    found = experiments(50, levels=5, between=0.1)
    assert sum(any(cell.shown for cell in each.cells) for each in found) / len(found) <= 0.1


def test_a_difference_of_a_third_is_shown_in_three_blocks() -> None:
    found = experiments(40, levels=4, blocks=3, runs=2, effect=math.log(1.3))
    assert sum(each.cells[1].shown for each in found) >= 32


def test_more_runs_of_the_same_trials_tell_little_more() -> None:
    few, many = (
        np.median([each.cells[1].ratio.high for each in experiments(40, runs=runs)]) for runs in (3, 30)
    )
    assert many > 1 + 0.7 * (few - 1)


def test_one_block_is_too_few_to_tell_whatever_it_says() -> None:
    [found] = experiments(1, blocks=1, effect=math.log(10))
    cell = found.cells[1]
    assert cell.ratio.value > 8 and math.isnan(cell.ratio.low) and not cell.shown
    assert reasons.not_shown(found) == ["Not shown (level=1): one block is too few to know."]
    assert reasons.blocks_needed(found) == 4


def test_why_a_difference_is_not_shown() -> None:
    rough = next(each for each in experiments(20, blocks=2, between=0.2) if not each.cells[1].shown)
    assert "can be distinguished from noise" in reasons.not_shown(rough)[0]
    assert (reasons.blocks_needed(rough) or 0) > 2
    assert list(reasons.left_out({"a": ["ok", "ok"], "b": ["ok", "invalid"]})) == [
        "Left out (b): 1 of 2 trials (invalid)."
    ]


def test_a_verdict_in_a_sentence() -> None:
    [clear] = experiments(1, blocks=4, effect=math.log(2))
    assert (reasons.verdict(clear, "level=1") or "").endswith("compared with the baseline: shown.")
    assert reasons.verdict(clear, "level=0") is None and reasons.verdict(None, "level=1") is None
    [single] = experiments(1, blocks=1)
    assert (reasons.verdict(single, "level=1") or "").endswith("not shown: one block is too few to know.")


def test_the_first_metric_has_most_of_the_error_rate_and_all_have_no_more_than_it() -> None:
    rates = error_rates(["compute_s", "transfer_mb", "rtt_ms"])
    assert sum(rates.values()) == pytest.approx(ALPHA)
    assert rates["compute_s"] > 0.7 * ALPHA and error_rates(["rtt_ms"]) == {"rtt_ms": ALPHA}


def test_a_cell_with_much_more_noise_than_the_others_is_judged_by_its_own() -> None:
    dice = np.random.default_rng(1)
    cells = [cell for _ in range(4) for cell in (0, 0, 1, 2, 3, 4)]
    values = dice.normal(0, 0.01, len(cells)) + [0.5 * dice.normal() * (cell == 1) for cell in cells]
    fit = Fit(cells, [block for block in range(4) for _ in range(6)], values)
    assert fit.difference(1, 0).df == 3 and fit.difference(2, 0).df == fit.df
    assert fit.difference(1, 0).error > 2 * fit.difference(2, 0).error


def test_two_runs_are_compared_with_what_blocks_differ_by() -> None:
    """They share no block: what one block differs from another by is part of the difference."""
    dice, missed = np.random.default_rng(3), 0
    for _ in range(200):
        cells, blocks, values = [], [], []
        for side in "ab":
            for block in range(4):
                drift = dice.normal(0, DRIFT)
                for cell in (0, 0, 1):
                    cells.append((side, cell))
                    blocks.append((side, block))
                    values.append(drift + dice.normal(0, BETWEEN))
        estimate = Fit(cells, blocks, np.array(values)).difference(("b", 1), ("a", 1))
        missed += abs(estimate.value) > estimate.margin
    assert missed / 200 <= 0.09


def test_many_comparisons_are_corrected_for_their_number() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_what_never_varies_is_shown_and_what_is_equal_is_not() -> None:
    """Bytes moved may be the same to the last one in every trial."""
    dice = np.random.default_rng(1)
    table = frame(dice, blocks=3, effect=0.1)
    table["value"] = [1.54 if level == "1" else 1.0 for level in table.level]
    found = answers(table, ["compute_s"])["compute_s"]
    assert found and found.cells[1].shown and found.cells[1].ratio.value == pytest.approx(1.54)
    table["value"] = 1.0
    found = answers(table, ["compute_s"])["compute_s"]
    assert found and not found.cells[1].shown


def test_the_width_is_that_of_the_widest_interval() -> None:
    dice = np.random.default_rng(1)
    narrow, wide = (width(frame(dice, blocks=blocks), ["compute_s"]) for blocks in (8, 2))
    assert 0 < narrow < wide and math.isinf(width(frame(dice, blocks=1), ["compute_s"]))


CPU = {"user_s": 70.0, "nice_s": 0.0, "system_s": 20.0, "idle_s": 10.0, "steal_s": 0.0}


def machines(**hypervisor: object) -> Hosts:
    return Hosts.model_validate({"hypervisor": {"name": "pve", "accel": "lxc", "cpu": CPU} | hypervisor})


def test_what_others_use_of_the_node_makes_a_trial_invalid_and_worth_a_repetition() -> None:
    found = list(node.foreign(machines(lab_cpu_s=47), Tolerances()))
    assert found == ["the node: processes outside the lab used 43 % of its CPU during the runs, allowed 15 %"]
    assert node.is_disturbed(found)
    assert not node.is_disturbed([*found, "requested a cap of 100 Mbit/s, measured 200 Mbit/s"])
    assert not node.is_disturbed([])
    assert list(node.foreign(machines(lab_cpu_s=85), Tolerances())) == []
    assert list(node.foreign(machines(), Tolerances())) == []  # a file of before: it is not known
    assert list(node.foreign(machines(lab_cpu_s=47), Tolerances(foreign_pct=100))) == []


def test_what_the_node_waited_for_is_judged_where_that_is_asked_for() -> None:
    waiting = machines(pressure_pct={"memory": 30.0, "disk": 1.0})
    assert list(node.foreign(waiting, Tolerances())) == []
    assert list(node.foreign(waiting, Tolerances(pressure_pct=20))) == [
        "the node: processes waited for memory in 30 % of the time, allowed 20 %"
    ]
