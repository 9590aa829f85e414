"""Why a difference is not shown, in words."""

from __future__ import annotations

import math

from dasklab.results.statistics import reasons

from tests.unit.dasklab.results.frames import experiments


def test_one_block_is_too_few() -> None:
    [result] = experiments(1, blocks=1, effect=math.log(10))
    assert reasons.not_shown(result) == ["Not shown (level=1): one block is too few to know."]
    assert reasons.blocks_needed(result) == 4


def test_noise_hides_a_difference() -> None:
    noisy = next(result for result in experiments(20, blocks=2, between=0.2) if not result.cells[1].is_shown)
    assert "can be distinguished from noise" in reasons.not_shown(noisy)[0]
    assert (reasons.blocks_needed(noisy) or 0) > 2


def test_trials_that_left_the_statistics_are_counted() -> None:
    assert list(reasons.left_out({"a": ["ok", "ok"], "b": ["ok", "invalid"]})) == [
        "Left out (b): 1 of 2 trials (invalid)."
    ]


def test_verdict_is_a_sentence() -> None:
    [clear] = experiments(1, blocks=4, effect=math.log(2))
    assert (reasons.verdict(clear, "level=1") or "").endswith("compared with the baseline: shown.")
    assert reasons.verdict(clear, "level=0") is None and reasons.verdict(None, "level=1") is None
    [single] = experiments(1, blocks=1)
    assert (reasons.verdict(single, "level=1") or "").endswith("not shown: one block is too few to know.")
