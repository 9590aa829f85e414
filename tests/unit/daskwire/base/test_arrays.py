"""Columns contain what was added, whatever share was announced."""

from __future__ import annotations

import numpy as np
from daskwire.base.arrays import Columns
from hypothesis import given
from hypothesis import strategies as st

BATCHES = st.lists(st.tuples(st.lists(st.integers(0, 255)), st.floats(0, 1)))


@given(BATCHES)
def test_columns_contain_all_batches_in_order(batches: list[tuple[list[int], float]]) -> None:
    columns = Columns(("u1", "i8"))
    for numbers, share in batches:
        columns.add([np.array(numbers, np.uint8), -np.array(numbers, np.int64)], share)
    small, large = columns.arrays()
    everything = [n for numbers, _ in batches for n in numbers]
    assert small.dtype == np.uint8 and large.dtype == np.int64
    assert small.tolist() == everything and large.tolist() == [-n for n in everything]


def test_views_stay_valid_when_rows_are_added() -> None:
    columns = Columns(("i8",))
    columns.add([np.arange(3)])
    (early,) = columns.arrays()
    for _ in range(10):
        columns.add([np.full(1000, 7)])
    assert early.tolist() == [0, 1, 2]
