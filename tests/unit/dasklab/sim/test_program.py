"""A program's keys are texts, and what they stand for is what Dask had."""

from __future__ import annotations

from typing import Any

import pytest
from dask.core import validate_key
from dasklab.sim.program import parse_key


@pytest.mark.parametrize("key", ["sum-1f", ("sum-1f", 0), ("a", 1.5, ("b", -2)), "(", "(1", "('a', 0) ", "3"])
def test_key_is_read_from_its_text(key: Any) -> None:
    assert parse_key(str(key)) == key


@pytest.mark.parametrize("text", ["(b'a', 0)", "('a', None)", "('a', [1])", "('a',  0)", "('a')"])
def test_text_that_is_no_tuple_of_dask_is_the_key_itself(text: str) -> None:
    key = parse_key(text)
    assert key == text
    validate_key(key)
