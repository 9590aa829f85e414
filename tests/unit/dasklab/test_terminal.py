"""Durations and counts as messages print them."""

from __future__ import annotations

import pytest
from dasklab.terminal import counted, data_size, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (58.4, "58 s"),
        (59.6, "1 min"),
        (65, "1 min 5 s"),
        (3599.7, "1 h"),
        (7500, "2 h 5 min"),
        (90000, "25 h"),
    ],
)
def test_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("trial",), "0 trials"),
        (1, ("trial",), "1 trial"),
        (2, ("trial",), "2 trials"),
        (1330, ("frame",), "1,330 frames"),
        (2, ("query", "queries"), "2 queries"),
    ],
)
def test_count_and_noun_agree(number: int, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(1, "1 byte"), (238, "238 bytes"), (12_345, "12 kB"), (3.42e6, "3.4 MB"), (1.2e9, "1,200 MB")],
)
def test_a_small_amount_of_data_is_no_zero(nbytes: float, text: str) -> None:
    assert data_size(nbytes) == text
