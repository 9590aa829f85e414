"""Candidates: which there are, that simulations honour them, how they are ranked by laws that are known."""

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

from tests.unit.dasklab.predict.test_whatif import CALIBRATION, TRIAL

STEALING = "distributed.scheduler.work-stealing"
INCOMING = "distributed.worker.connections.incoming"
OUTGOING = "distributed.worker.connections.outgoing"
BYTES = "distributed.worker.transfer.message-bytes-limit"
NOISE = {0: 1.0, 1: 1.2, 2: 0.7}
Law = Callable[[dict[str, Any]], float]


def stand_in(monkeypatch: pytest.MonkeyPatch, law: Law) -> list[Scenario]:
    """Simulations take what a law says of Dask's settings, times the seed's noise; returns who was asked."""
    asked: list[Scenario] = []

    def simulate_all(scenarios: Iterable[Scenario], told: Callable[[Outcome], None]) -> list[Outcome]:
        outcomes = []
        for one in scenarios:
            asked.append(one)
            took = law(dict(dask_settings.flatten(one.dask))) * NOISE[one.seed]
            run = SimulatedRun(warmup=False, duration_s=took, transfer_bytes=0)
            warmup = SimulatedRun(warmup=True, duration_s=99, transfer_bytes=0)
            about: dict[str, Any] = {"digest": "", "messages": 0, "ops": {}, "unknown": (), "cpu_s": 0}
            outcomes.append(Outcome(seed=one.seed, runs=(warmup, run), **about))
            told(outcomes[-1])
        return outcomes

    monkeypatch.setattr(farm, "simulate_all", simulate_all)
    return asked


def saves(settings: dict[str, Any]) -> float:
    """Without stealing 20 % less, with one connection in 10 % less, both 28 %; a belief costs."""
    stealing = 0.8 if settings.get(STEALING) is False else 1.0
    incoming = 0.9 if settings.get(INCOMING) == 1 else 1.0
    believed = 1.5 if advice.BANDWIDTH in settings else 1.0
    return 10 * stealing * incoming * believed


def of(trial: Trial = TRIAL) -> list[str]:
    return [one.name for one in advice.singles(trial, CALIBRATION)]


def wider(workers: int) -> Trial:
    return TRIAL.model_copy(update={"workers": workers})


def test_every_setting_is_one_of_the_installed_dask_and_no_level_is_its_default() -> None:
    for one in advice.singles(wider(60), CALIBRATION):
        assert dask_settings.find_mistake(one.changes["dask"]) is None
        assert all(dask_settings.defaults()[name] != value for name, value in one.settings)


def test_what_cannot_matter_to_so_few_workers_is_not_tried() -> None:
    assert not any("connections" in name for name in of())  # two workers: one peer
    some = [name for name in of(wider(3)) if "connections" in name]
    assert some == ["connections.outgoing=1", "connections.incoming=1"]
    many = [name for name in of(wider(60)) if "connections" in name]
    assert many == [
        *(f"connections.outgoing={count}" for count in (1, 4, 16, 64)),  # 50 by default, of 59 peers
        *(f"connections.incoming={count}" for count in (1, 4, 16, 64)),
    ]


def test_a_belief_is_the_rate_of_the_workers_link_and_a_tenth() -> None:
    # 200 Mbit/s, 1448 of 1514 bytes: 23.9 MB/s
    assert [name for name in of() if "bandwidth" in name] == ["bandwidth=2400000", "bandwidth=24000000"]


def test_what_the_trial_has_set_is_no_candidate_and_its_default_is_none_either() -> None:
    own = TRIAL.model_copy(update={"dask": {"distributed": {"scheduler": {"work-stealing": False}}}})
    assert "work-stealing=false" in of()
    assert "work-stealing=false" not in of(own)
    seat = {"variant": "no-stealing", "settings": {"distributed": {"scheduler": {"work-stealing": False}}}}
    seated = Trial.model_validate({**TRIAL.model_dump(), "resolved_scheduler": seat})
    assert not any(name.startswith("work-stealing=") for name in of(seated))


def test_gains_are_those_of_the_law_whatever_the_seed_and_pairs_are_of_what_gains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, saves)
    found = advice.search(tmp_path, wider(3), [CALIBRATION], range(3), lambda _: None)
    gains = {one.candidate.name: one.gain.value for one in found.ranked}
    assert gains["work-stealing=false"] == pytest.approx(0.2)
    assert gains["connections.incoming=1"] == pytest.approx(0.1)
    assert gains["work-stealing=false, connections.incoming=1"] == pytest.approx(0.28)
    assert gains["bandwidth=2400000"] == pytest.approx(-0.5)
    assert sum(", " in name for name in gains) == 1  # nothing else gained alone
    assert list(gains.values()) == sorted(gains.values(), reverse=True)
    assert all(one.gain.high - one.gain.low < 1e-9 for one in found.ranked)  # the same seeds on both sides
    assert found.seconds.value == pytest.approx(10 * (1 + 1.2 + 0.7) / 3)
    best = [one.name for one in found.best]
    assert best == [
        "work-stealing=false, connections.incoming=1",
        "work-stealing=false",
        "connections.incoming=1",
    ]


def test_what_was_simulated_is_not_simulated_again_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = stand_in(monkeypatch, saves)

    class StoppedError(Exception):
        """As by Ctrl-C."""

    def stop(_: Outcome) -> None:
        if len(asked) == 7:
            raise StoppedError

    with pytest.raises(StoppedError):
        advice.search(tmp_path, TRIAL, [CALIBRATION], range(3), stop)
    whole = advice.search(tmp_path, TRIAL, [CALIBRATION], range(3))
    digests = [advice._digest(one) for one in asked]
    assert len(digests) == len(set(digests)) == 3 * (1 + len(whole.ranked))
    assert advice.search(tmp_path, TRIAL, [CALIBRATION], range(3)) == whole
    assert len(asked) == len(digests)


def ranked(*gains: float) -> Search:
    names = (STEALING, INCOMING, OUTGOING, BYTES)
    halves = [Candidate(((name, 1),)) for name in names]
    both = halves[0] + halves[1]
    every = zip([*halves, both], gains, strict=True)
    found = sorted((Ranked(one, Interval(gain)) for one, gain in every), key=lambda one: -one.gain.value)
    return Search(Interval(1.0), tuple(found))


def test_at_most_three_are_confirmed_and_a_pair_only_if_it_gains_more_than_its_halves() -> None:
    names = [one.name for one in ranked(0.3, 0.2, 0.1, 0.05, 0.25).best]
    assert names == ["work-stealing=1", "connections.incoming=1", "connections.outgoing=1"]
    assert len(ranked(0.3, 0.2, 0.1, 0.05, 0.4).best[0].settings) == 2


def test_where_nothing_gains_there_is_nothing_to_confirm() -> None:
    assert ranked(0.0, -0.1, 0.0, -0.2, -0.3).best == []


def test_two_levels_of_one_setting_are_no_pair() -> None:
    same = [Ranked(Candidate(((STEALING, level),)), Interval(gain)) for level, gain in ((1, 0.1), (2, 0.2))]
    other = Ranked(Candidate(((BYTES, "5MB"),)), Interval(0.05))
    assert [one.settings for one in advice.pairs([*same, other])] == [((STEALING, 2), (BYTES, "5MB"))]
