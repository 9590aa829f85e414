"""Sensitivities, their intervals and the knee, on simulations that follow a known law."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from dasklab.commands import sensitivity as command
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Outcome, SimulatedRepeat, Timings
from dasklab.predict import pictures, sensitivity
from dasklab.predict.engine import processes
from dasklab.predict.validation import Validated
from dasklab.results.run import Run
from dasklab.results.statistics.interval import Interval
from dasklab.results.storage import documents
from dasklab.sim.scenario import Scenario

from tests.unit.dasklab.predict.samples import CALIBRATION, PAYLOAD, TRIAL

NOISE = {0: 0.99, 1: 1.01, 2: 1.0}  # by seed
Law = Callable[[Scenario], float]


def varied_work() -> sensitivity.VariedWork:
    return sensitivity.VariedWork.of_trial(TRIAL, [CALIBRATION], range(3))


def power_law(scenario: Scenario) -> float:
    """A power of each resource: the exponents are the expected sensitivities."""
    loss = scenario.links["worker-1"].loss_pct if "worker-1" in scenario.links else 0.0
    lossy = 1.25 if loss > 0.05 else 1.0
    scheduler = scenario.costs["scheduler"].op_s ** 0.2
    tasks = sum(scenario.tasks["add"][0][:2]) ** 0.5
    rate = scenario.rates_mbit["worker-1"] ** -0.3
    return float(lossy * scheduler * tasks * rate * scenario.workers**-0.4)


def analyzed(
    monkeypatch: pytest.MonkeyPatch, law: Law, measured: sensitivity.MeasuredTimes
) -> sensitivity.Sensitivities:
    """Analyze a trial at 200 Mbit/s; simulations follow the law, with 1 % of variation between seeds."""

    def outcome(scenario: Scenario) -> Outcome:
        duration_s = law(scenario) * NOISE[scenario.seed]
        warmup = SimulatedRepeat(warmup=True, duration_s=99, transfer_bytes=0)
        run = SimulatedRepeat(warmup=False, duration_s=duration_s, transfer_bytes=0)
        return Outcome(
            seed=scenario.seed, repeats=(warmup, run), digest="", messages=0, ops={}, unknown=(), cpu_s=0
        )

    def simulate_all(scenarios: Iterable[Scenario], on_outcome: object) -> list[Outcome]:
        return [outcome(scenario) for scenario in scenarios]

    monkeypatch.setattr(processes, "simulate_all", simulate_all)
    return sensitivity.analyze(varied_work(), measured)


def test_sensitivities_are_the_exponents_of_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = {effect.name: effect for effect in analyzed(monkeypatch, power_law, {}).effects}
    gains = {name: effect.gain_pct.value for name, effect in effects.items()}
    assert gains["rate of all links"] == pytest.approx(0.3)
    assert gains["scheduler's CPU"] == pytest.approx(0.2)
    assert gains["workers"] == pytest.approx(0.4)
    assert gains["round trip"] == pytest.approx(0)
    # A task's 2 s are 0.5 s on a core and 0.5 s of waiting for one: 3 s at half the speed, 1.5 s at twice
    assert gains["workers' CPU"] == pytest.approx(0.5 * 0.5)  # a factor of 2 between them, to the power 0.5
    assert gains["0.1 % more loss on all links"] == pytest.approx(-25)
    assert not effects["0.1 % more loss on all links"].relative
    # Without waiting a task takes 1.5 s of 2 s, and the scheduler half its time
    assert gains["no waiting for a core"] == pytest.approx(100 * (1 - 0.75**0.5 * 0.5**0.2))
    assert all(effect.simulated for effect in effects.values())


def test_every_change_is_simulated_once_with_each_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated: list[tuple[int, str]] = []

    def law(scenario: Scenario) -> float:
        simulated.append((scenario.seed, scenario.model_dump_json(exclude={"seed"})))
        return 1.0

    analyzed(monkeypatch, law, {})
    assert len(simulated) == len(set(simulated)) == 3 * len(sensitivity.changes(varied_work()))


def test_interval_is_students() -> None:
    interval = sensitivity.student([1.0, 2.0, 3.0])
    margin = 4.3027 / 3**0.5  # t of two degrees of freedom
    assert (interval.value, interval.low, interval.high) == pytest.approx((2, 2 - margin, 2 + margin), 1e-4)
    assert str(sensitivity.student([5.0]).low) == "nan"


def test_every_interval_includes_the_prediction_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Validated, "prediction_error", 0.0)
    exact = analyzed(monkeypatch, power_law, {})
    monkeypatch.setattr(Validated, "prediction_error", 0.25)
    wide = analyzed(monkeypatch, power_law, {})
    assert wide.seconds.low == pytest.approx(exact.seconds.low / 1.25)
    assert wide.seconds.high == pytest.approx(exact.seconds.high * 1.25)
    narrow_by_name, wide_by_name = (
        {effect.name: effect.gain_pct for effect in result.effects} for result in (exact, wide)
    )
    rate, loss = "rate of all links", "0.1 % more loss on all links"
    # Half and double are a factor of 4 apart; an error of x 1.25 between them changes the slope by this
    margin = 0.16096  # log 1.25 / log 4
    assert wide_by_name[rate].low == pytest.approx(narrow_by_name[rate].low - margin, abs=1e-4)
    assert wide_by_name[rate].high == pytest.approx(narrow_by_name[rate].high + margin, abs=1e-4)
    # x 1.25 with loss becomes x 1 to x 1.5625
    ends = (wide_by_name[loss].low, wide_by_name[loss].value, wide_by_name[loss].high)
    assert ends == pytest.approx((-56.25, -25, 0))


def test_knee_is_the_rate_above_which_links_no_longer_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def bound_by_links(scenario: Scenario) -> float:
        return max(2.0, 800 / (scenario.rates_mbit["worker-1"] / PAYLOAD))

    result = analyzed(monkeypatch, bound_by_links, {})
    assert result.now_mbit == pytest.approx(200)
    assert list(result.rates) == pytest.approx([50, 100, 200, 400, 800, 1600, 3200])
    assert result.knee_mbit == pytest.approx(400)
    assert command._knee(result) == (
        "Links faster than 400 Mbit/s save less than 5 % of the time, up to 3,200 Mbit/s (simulated)."
    )


def test_there_is_no_knee_where_the_fastest_links_still_help(monkeypatch: pytest.MonkeyPatch) -> None:
    result = analyzed(monkeypatch, lambda scenario: 800 / scenario.rates_mbit["worker-1"], {})
    assert result.knee_mbit is None
    assert command._knee(result) == "Faster links help up to the fastest simulated rate, 3,200 Mbit/s."


def test_measured_effects_follow_the_simulated_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    result = analyzed(
        monkeypatch,
        power_law,
        {
            sensitivity.RATE: {100.0: [(1, 4.0), (2, 4.0)], 400.0: [(1, 2.0), (2, 2.0)]},
            sensitivity.WORKERS: {2: [(1, 3.0)], 4: [(1, 3.0)]},
        },
    )
    rate, workers = result.effects[-2:]
    assert (workers.name, workers.now, round(workers.gain_pct.value, 9)) == ("workers", "2 to 4", 0)
    assert (rate.name, rate.now, rate.simulated) == ("rate of all links", "100 to 400 Mbit/s", False)
    assert rate.gain_pct.value == pytest.approx(0.5)
    assert [point.value for point in result.measured.values()] == [4, 2]


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (Interval(0.3, 0.2, 0.4), ("0.30 % less", "0.20 to 0.40")),
        (Interval(-25, -30, -20), ("25 % more", "20 to 30")),
        (Interval(0.1, -0.1, 0.3), ("none shown", "0.10 % more to 0.30 % less")),
        (Interval(0.3), ("0.30 % less", "")),
    ],
)
def test_time_is_less_or_more_or_none_is_shown(gain: Interval, words: tuple[str, str]) -> None:
    assert command._row(sensitivity.Effect("x", "now", True, gain)) == ("x", "now", *words)


def test_measured_times_are_of_trials_that_differ_in_one_resource(tmp_path: Path) -> None:
    def trial(name: str, seconds: float, rate: float, **settings: object) -> None:
        nics = {host: {"rate_mbit": rate} for host in ("scheduler", "worker-1", "worker-2")}
        content = TRIAL.model_dump() | {"trial": name, "nics": nics} | settings
        sample = {"repeat": 0, "warmup": False, "start": 0, "stop": 1, "duration_s": seconds, "ok": True}
        cluster = {"workers": 2, "threads": 2, "addresses": {}}
        timings = {"workload": "w", "params": {}, "tasks": None, "samples": [sample], "cluster": cluster}
        (tmp_path / name).mkdir()
        documents.write(tmp_path / name, RequestedTrial.model_validate(content))
        documents.write(tmp_path / name, Timings.model_validate(timings | {"versions": {}}))
        result = {"schema": 4, "experiment": "e", "trial": name, "cell": "c", "status": "ok", "reasons": []}
        spent = {"wall_s": 1, "measuring_s": 1}
        (tmp_path / name / "result.json").write_text(json.dumps(result | spent))
        attempt = {"schema": 4, "started": 0, "exit_status": 0, "error": None, "files": ["timings.json"]}
        (tmp_path / name / "attempt.json").write_text(json.dumps(attempt | spent))

    trial("a", 4.0, 100)
    trial("b", 2.0, 300)
    trial("c", 3.0, 100, null=True)
    trial("uncapped", 1.0, 0)
    trial("more", 1.5, 100, workers=3)
    trial("flooded", 9.0, 100, bridge="flooding")
    campaign = {"schema": 4, "name": "e", "quick": False, "seed": 1, "only": None, "git_revision": None}
    order = ["a", "b", "c", "uncapped", "more", "flooded"]
    campaign |= {"order": order, "setup": {"hosts": []}, "experiment": {}}
    (tmp_path / "experiment.json").write_text(json.dumps(campaign))
    times = sensitivity.measured_times(Run(tmp_path), documents.require(RequestedTrial, tmp_path / "a"))
    assert times == {
        sensitivity.RATE: {100.0: [(1, 4.0), (1, 3.0)], 300.0: [(1, 2.0)]},
        sensitivity.WORKERS: {2: [(1, 4.0), (1, 3.0)], 3: [(1, 1.5)]},
    }
    outside_a_run = sensitivity.measured_times(Run(tmp_path / "a"), TRIAL)
    assert outside_a_run == {sensitivity.RATE: {}, sensitivity.WORKERS: {}}


def test_picture_is_marked_as_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    for measured, mark in (
        ({}, "simulated"),
        ({sensitivity.RATE: {100.0: [(1, 4.0), (2, 3.0)]}}, "simulated, unless marked otherwise"),
    ):
        figure = pictures.draw(analyzed(monkeypatch, power_law, measured))
        assert [text.get_text() for text in figure.texts] == [mark]
        names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert names == ["rate of all links", "round trip", "scheduler's CPU", "workers' CPU", "workers"]
