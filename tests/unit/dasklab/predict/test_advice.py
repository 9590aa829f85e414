"""The search for settings: its candidates, and their ranking on simulations that follow a known law."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from dasklab.model import dask_settings
from dasklab.model.files import Outcome, SimulatedRun
from dasklab.model.trial import Trial
from dasklab.predict import advice, farm
from dasklab.predict.advice import Candidate, Ranked, Search
from dasklab.results.statistics.interval import Interval
from dasklab.sim.scenario import Scenario

from tests.unit.dasklab.predict.samples import CALIBRATION, TRIAL

STEALING = "distributed.scheduler.work-stealing"
INCOMING = "distributed.worker.connections.incoming"
OUTGOING = "distributed.worker.connections.outgoing"
BYTES = "distributed.worker.transfer.message-bytes-limit"
NOISE = {0: 1.0, 1: 1.2, 2: 0.7}  # by seed
Law = Callable[[dict[str, Any]], float]


def simulate_by(monkeypatch: pytest.MonkeyPatch, law: Law) -> list[Scenario]:
    """Let simulations follow a law of Dask's settings, times the seed's noise; return the scenarios."""
    scenarios: list[Scenario] = []

    def outcome(scenario: Scenario) -> Outcome:
        seconds = law(dict(dask_settings.flatten(scenario.dask))) * NOISE[scenario.seed]
        warmup = SimulatedRun(warmup=True, duration_s=99, transfer_bytes=0)
        run = SimulatedRun(warmup=False, duration_s=seconds, transfer_bytes=0)
        return Outcome(
            seed=scenario.seed, runs=(warmup, run), digest="", messages=0, ops={}, unknown=(), cpu_s=0
        )

    def simulate_all(requested: Iterable[Scenario], on_outcome: Callable[[Outcome], None]) -> list[Outcome]:
        outcomes = []
        for scenario in requested:
            scenarios.append(scenario)
            outcomes.append(outcome(scenario))
            on_outcome(outcomes[-1])
        return outcomes

    monkeypatch.setattr(farm, "simulate_all", simulate_all)
    return scenarios


def known_law(settings: dict[str, Any]) -> float:
    """Without stealing 20 % less time, with one incoming connection 10 % less, with both 28 % less.

    A bandwidth estimate costs 50 %.
    """
    stealing = 0.8 if settings.get(STEALING) is False else 1.0
    incoming = 0.9 if settings.get(INCOMING) == 1 else 1.0
    estimate = 1.5 if advice.BANDWIDTH in settings else 1.0
    return 10 * stealing * incoming * estimate


def names(trial: Trial = TRIAL) -> list[str]:
    return [candidate.name for candidate in advice.singles(trial, CALIBRATION)]


def with_workers(workers: int) -> Trial:
    return TRIAL.model_copy(update={"workers": workers})


def test_every_candidate_is_a_setting_of_the_installed_dask_and_not_its_default() -> None:
    for candidate in advice.singles(with_workers(60), CALIBRATION):
        assert dask_settings.find_mistake(candidate.changes["dask"]) is None
        assert all(dask_settings.defaults()[name] != value for name, value in candidate.settings)


def test_numbers_of_connections_depend_on_the_number_of_peers() -> None:
    assert not any("connections" in name for name in names())  # two workers: one peer
    three = [name for name in names(with_workers(3)) if "connections" in name]
    assert three == ["connections.outgoing=1", "connections.incoming=1"]
    sixty = [name for name in names(with_workers(60)) if "connections" in name]
    assert sixty == [
        *(f"connections.outgoing={count}" for count in (1, 4, 16, 64)),  # default: 50, of 59 peers
        *(f"connections.incoming={count}" for count in (1, 4, 16, 64)),
    ]


def test_bandwidth_estimates_are_the_rate_of_a_workers_link_and_10_percent_of_it() -> None:
    # 200 Mbit/s, of which 1448 / 1514 is payload: 23.9 MB/s
    assert [name for name in names() if "bandwidth" in name] == ["bandwidth=2400000", "bandwidth=24000000"]


def test_settings_of_the_trial_and_of_its_scheduler_variant_are_no_candidates() -> None:
    settings = {"distributed": {"scheduler": {"work-stealing": False}}}
    own = TRIAL.model_copy(update={"dask": settings})
    assert "work-stealing=false" in names()
    assert "work-stealing=false" not in names(own)
    variant = {"variant": "no-stealing", "settings": settings}
    of_variant = Trial.model_validate({**TRIAL.model_dump(), "resolved_scheduler": variant})
    assert not any(name.startswith("work-stealing=") for name in names(of_variant))


def test_gains_follow_the_law_whatever_the_seed_and_only_gains_are_paired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_by(monkeypatch, known_law)
    search = advice.search(tmp_path, with_workers(3), [CALIBRATION], range(3), lambda _: None)
    gains = {entry.candidate.name: entry.gain.value for entry in search.ranked}
    assert gains["work-stealing=false"] == pytest.approx(0.2)
    assert gains["connections.incoming=1"] == pytest.approx(0.1)
    assert gains["work-stealing=false, connections.incoming=1"] == pytest.approx(0.28)
    assert gains["bandwidth=2400000"] == pytest.approx(-0.5)
    assert sum(", " in name for name in gains) == 1  # no other setting gained alone
    assert list(gains.values()) == sorted(gains.values(), reverse=True)
    # Both sides have the same seeds, so their noise cancels
    assert all(entry.gain.high - entry.gain.low < 1e-9 for entry in search.ranked)
    assert search.seconds.value == pytest.approx(10 * (1 + 1.2 + 0.7) / 3)
    assert [candidate.name for candidate in search.best] == [
        "work-stealing=false, connections.incoming=1",
        "work-stealing=false",
        "connections.incoming=1",
    ]


def test_resumed_search_simulates_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenarios = simulate_by(monkeypatch, known_law)

    class CtrlCError(Exception):
        """Takes the place of Ctrl-C."""

    def interrupt(_: Outcome) -> None:
        if len(scenarios) == 7:
            raise CtrlCError

    with pytest.raises(CtrlCError):
        advice.search(tmp_path, TRIAL, [CALIBRATION], range(3), interrupt)
    search = advice.search(tmp_path, TRIAL, [CALIBRATION], range(3))
    digests = [advice._digest(scenario) for scenario in scenarios]
    assert len(digests) == len(set(digests)) == 3 * (1 + len(search.ranked))
    assert advice.search(tmp_path, TRIAL, [CALIBRATION], range(3)) == search
    assert len(scenarios) == len(digests)


def search_with(*gains: float) -> Search:
    """A search whose candidates are four settings and the pair of the first two, with these gains."""
    singles = [Candidate(((name, 1),)) for name in (STEALING, INCOMING, OUTGOING, BYTES)]
    candidates = [*singles, singles[0] + singles[1]]
    ranked = [Ranked(candidate, Interval(gain)) for candidate, gain in zip(candidates, gains, strict=True)]
    return Search(Interval(1.0), tuple(sorted(ranked, key=lambda entry: -entry.gain.value)))


def test_at_most_three_are_confirmed_and_a_pair_only_if_it_gains_more_than_its_settings() -> None:
    best = [candidate.name for candidate in search_with(0.3, 0.2, 0.1, 0.05, 0.25).best]
    assert best == ["work-stealing=1", "connections.incoming=1", "connections.outgoing=1"]
    assert len(search_with(0.3, 0.2, 0.1, 0.05, 0.4).best[0].settings) == 2


def test_without_gains_there_is_nothing_to_confirm() -> None:
    assert search_with(0.0, -0.1, 0.0, -0.2, -0.3).best == []


def test_two_levels_of_one_setting_are_not_paired() -> None:
    levels = [Ranked(Candidate(((STEALING, level),)), Interval(gain)) for level, gain in ((1, 0.1), (2, 0.2))]
    other = Ranked(Candidate(((BYTES, "5MB"),)), Interval(0.05))
    pairs = advice.pairs([*levels, other])
    assert [pair.settings for pair in pairs] == [((STEALING, 2), (BYTES, "5MB"))]
