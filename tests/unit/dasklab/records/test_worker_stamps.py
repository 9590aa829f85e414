"""A computation lies between the stamps of its event loop, whatever Dask's correction of its clock was."""

from __future__ import annotations

from math import isnan, nan

import pytest
from dasklab.records.recorder.worker import between


@pytest.mark.parametrize(
    ("computed", "expected"),
    [((2.0, 3.0), (2.0, 3.0)), ((4.5, 5.5), (4.0, 5.0)), ((0.5, 1.5), (1.0, 2.0))],
    ids=["within", "after its end was known", "before it was given to a thread"],
)
def test_a_computation_is_moved_between_its_bounds(
    computed: tuple[float, float], expected: tuple[float, float]
) -> None:
    assert between(*computed, 1.0, 5.0) == expected


def test_what_is_unknown_stays_unknown() -> None:
    assert all(map(isnan, between(nan, nan, 1.0, 5.0)))
    assert between(2.0, 3.0, nan, 5.0) == (2.0, 3.0)
