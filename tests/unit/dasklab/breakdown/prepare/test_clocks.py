"""Estimated clocks against synthetic ones, with known offsets, latencies and loads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from dasklab.breakdown.prepare.clocks import Clock, at_least, at_most, estimate

SEEDS = range(20)


@dataclass(frozen=True)
class Case:
    """Tasks over seconds; the least latency in each direction, and the mean of what is added, in ms."""

    tasks: int
    seconds: float
    least: tuple[float, float]
    tails: tuple[float, float]
    wander_ms: float = 0


@cache  # several tests use the same
def measured(case: Case, seed: int, delay_s: float = 0.0) -> tuple[Clock, float, float]:
    """The estimate; the true offset at its time, and the true skew."""
    chance = np.random.default_rng(seed)
    offset, skew = chance.uniform(-2, 2), chance.uniform(-1e-4, 1e-4)

    def local(reference: np.ndarray) -> np.ndarray:
        wander = case.wander_ms / 1e3 * np.sin(2 * np.pi * reference / (case.seconds / 3))
        return reference + offset + skew * reference + wander

    sent = np.sort(chance.uniform(0, case.seconds, case.tasks))
    arrived = sent + case.least[0] / 1e3 + chance.exponential(case.tails[0] / 1e3, case.tasks)
    reported = arrived + chance.exponential(0.01, case.tasks)
    handled = reported + case.least[1] / 1e3 + chance.exponential(case.tails[1] / 1e3, case.tasks)
    clock = estimate(at_most(sent, local(arrived), delay_s), at_least(local(reported), handled))
    return clock, offset + skew * clock.at_s, skew


def errors_us(case: Case, delay_s: float = 0.0) -> np.ndarray:
    estimates = [measured(case, seed, delay_s) for seed in SEEDS]
    return np.array([abs(clock.offset_s - true) * 1e6 for clock, true, _ in estimates])


CASES = {
    "many": (Case(2000, 60, (0.4, 0.4), (2, 2)), 5, 20),
    "few": (Case(100, 5, (0.4, 0.4), (2, 2)), 60, 250),
    "busy": (Case(500, 20, (0.4, 0.4), (50, 20)), 300, 1200),
}


@pytest.mark.parametrize("name", CASES)
def test_equal_latencies_give_the_offset(name: str) -> None:
    case, median_us, most_us = CASES[name]
    errors = errors_us(case)
    assert np.median(errors) < median_us
    assert errors.max() < most_us


@pytest.mark.parametrize("case", [case for case, _, _ in CASES.values()] + [Case(50, 3, (5, 0.1), (1, 9))])
def test_the_truth_lies_in_the_interval(case: Case) -> None:
    for seed in SEEDS:
        clock, true, _ = measured(case, seed)
        assert clock.linear
        assert clock.low_s <= true <= clock.high_s


def test_the_interval_is_as_wide_as_the_least_latencies() -> None:
    clock, _, _ = measured(CASES["many"][0], 1)
    assert clock.half_s == pytest.approx(0.4e-3, rel=0.1)


def test_unequal_latencies_are_off_by_half_their_difference() -> None:
    errors = errors_us(Case(2000, 60, (1.2, 0.4), (2, 2)))
    assert np.median(errors) == pytest.approx(400, abs=15)


def test_a_known_delay_is_subtracted() -> None:
    case = Case(2000, 60, (10.4, 0.4), (2, 2))
    assert np.median(errors_us(case)) == pytest.approx(5000, abs=20)
    assert np.median(errors_us(case, delay_s=0.010)) < 10


def test_skew_is_estimated() -> None:
    for seed in SEEDS:
        clock, _, skew = measured(CASES["many"][0], seed)
        assert clock.skew == pytest.approx(skew, abs=1e-6)


def test_a_clock_that_wanders_is_not_linear() -> None:
    wandering = Case(2000, 60, (0.4, 0.4), (2, 2), wander_ms=1)
    assert not any(measured(wandering, seed)[0].linear for seed in SEEDS)


def test_stamps_convert_to_the_reference() -> None:
    clock = Clock(at_s=1000.0, offset_s=3.0, skew=1e-4, low_s=2.9, high_s=3.1)
    reference = np.array([990.0, 1000.0, 1500.0])
    local = reference + 3.0 + 1e-4 * (reference - 1000.0)
    assert clock.to_reference(local) == pytest.approx(reference, abs=1e-5)


def test_one_sided_or_no_bounds_leave_the_interval_open() -> None:
    assert estimate(at_most([], []), at_least([], [])) == Clock()
    above = estimate(at_most([10.0, 20.0], [12.0, 21.0]), at_least([], []))
    assert (above.low_s, above.high_s) == (-np.inf, 1.0)
