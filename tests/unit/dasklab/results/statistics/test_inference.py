"""The model of trials and blocks, on data whose truth is known: errors, degrees of freedom, corrections."""

from __future__ import annotations

import numpy as np
import pytest
from dasklab.results.statistics.inference import Fit, holm

from tests.unit.dasklab.results.frames import BETWEEN, DRIFT


def test_cell_with_much_more_noise_than_the_others_has_its_own_error() -> None:
    random = np.random.default_rng(1)
    cells = [cell for _ in range(4) for cell in (0, 0, 1, 2, 3, 4)]
    values = random.normal(0, 0.01, len(cells)) + [0.5 * random.normal() * (cell == 1) for cell in cells]
    fit = Fit(cells, [block for block in range(4) for _ in range(6)], values)
    assert fit.difference(1, 0).df == 3 and fit.difference(2, 0).df == fit.df
    assert fit.difference(1, 0).error > 2 * fit.difference(2, 0).error


def test_cells_without_a_common_block_are_compared_with_the_variance_between_blocks() -> None:
    random, outside = np.random.default_rng(3), 0
    for _ in range(200):
        cells, blocks, values = [], [], []
        for side in "ab":
            for block in range(4):
                drift = random.normal(0, DRIFT)
                for cell in (0, 0, 1):
                    cells.append((side, cell))
                    blocks.append((side, block))
                    values.append(drift + random.normal(0, BETWEEN))
        estimate = Fit(cells, blocks, np.array(values)).difference(("b", 1), ("a", 1))
        outside += abs(estimate.value) > estimate.margin
    assert outside / 200 <= 0.09


def test_p_values_are_corrected_for_their_number() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
