"""Truths that no answer could have would count each answer as wrong."""

from __future__ import annotations

import pytest
from dasklab.breakdown.model.causes import BOTTLENECKS

from benchmarks.situations import SITUATIONS, is_right_place
from benchmarks.situations.situation import CLIENT, NOWHERE, WORKERS

NAMES = {bottleneck.name for bottleneck in BOTTLENECKS}


@pytest.mark.parametrize("name", SITUATIONS)
def test_truth_names_bottlenecks_and_docstring_says_what_happens(name: str) -> None:
    situation = SITUATIONS[name]
    assert set(situation.truth) <= NAMES
    assert situation.act.__doc__


@pytest.mark.parametrize(
    ("bottleneck", "place", "truth", "right"),
    [
        ("locks", "worker-1", None, True),
        ("locks", CLIENT, None, False),
        ("client code", CLIENT, None, True),
        ("no worker", NOWHERE, None, True),
        ("outside", "worker-1", "worker-0", False),
        ("outside", "worker-1", (CLIENT, WORKERS), True),
    ],
)
def test_place_is_right(
    bottleneck: str, place: str, truth: str | tuple[str, ...] | None, right: bool
) -> None:
    assert is_right_place(bottleneck, place, truth) is right
