"""Truths that no answer could have would count each answer as wrong."""

from __future__ import annotations

import pytest
from dasklab.breakdown.answers.advice import RULES
from dasklab.breakdown.model.causes import BOTTLENECKS

from benchmarks.support.situations import SITUATIONS, is_right_place
from benchmarks.support.situations.situation import CLIENT, NOWHERE, WORKERS

NAMES = {bottleneck.name for bottleneck in BOTTLENECKS}


@pytest.mark.parametrize("name", SITUATIONS)
def test_truth_names_bottlenecks_and_docstring_says_what_happens(name: str) -> None:
    situation = SITUATIONS[name]
    assert set(situation.truth) <= NAMES
    assert situation.act.__doc__
    assert {*(situation.advice or ()), *situation.wrong_advice} <= {rule.title for rule in RULES}


def test_advice_is_false_or_missing() -> None:
    stragglers = SITUATIONS["two_stragglers"]
    assert stragglers.misses_advice(["one long task"]) and not stragglers.misses_advice(["few long tasks"])
    assert stragglers.false_advice(["one long task", "few long tasks"]) == ["one long task"]
    healthy = SITUATIONS["short_and_healthy"]
    assert healthy.false_advice(["too few CPUs", "small tasks"]) == ["small tasks"]
    assert not healthy.misses_advice([])


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
