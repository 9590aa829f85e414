"""A trial in which a process or its machine was stopped is invalid; one that only computed is not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path

import pytest
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.files import Pause
from dasklab.results.validity import verdict
from dasklab.running.driver import driver, stops

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json

Measure = Callable[..., driver.ActiveRun]
STOPPED = {"process": "worker-2", "lasted_s": 20.0, "cpu_s": 0.0, "waited_s": 0.0, "suspended_s": 0.0}


def reasons(measured: Measure, pause: Json, sample: int = 3) -> set[tuple[str, ...]]:
    """Put a pause into a sample of all trials, and return their reasons."""

    def spoil(trial: Json, files: Json) -> int:
        files["timings.json"]["samples"][sample]["pauses"] = [pause]
        return 0

    results = verdict.assess(measured(FakeLab(spoil=spoil)).opened_again()).values()
    assert all((result.status == "invalid") == bool(result.reasons) for result in results)
    return {result.reasons for result in results}


def test_stopped_worker_makes_a_trial_invalid(measured: Measure) -> None:
    text = "the process was stopped for 20.0 s (it used 0.0 s of CPU and waited 0.0 s for one) in repeat 3"
    assert reasons(measured, STOPPED) == {(f"worker-2: {text}",)}


def test_suspended_machine_makes_a_trial_invalid(measured: Measure) -> None:
    text = "its machine was suspended for 19.0 s in repeat 3"
    assert reasons(measured, STOPPED | {"suspended_s": 19.0}) == {(f"worker-2: {text}",)}


@pytest.mark.parametrize(
    "active",
    [{"cpu_s": 19.9}, {"waited_s": 15.0}, {"cpu_s": 60.0}, {"lasted_s": 1.5}],
    ids=["computed", "waited for a CPU", "on many threads", "short"],
)
def test_active_process_is_part_of_what_is_measured(active: Json, measured: Measure) -> None:
    assert reasons(measured, STOPPED | active) == {()}


def test_warm_up_may_pause(measured: Measure) -> None:
    assert reasons(measured, STOPPED, sample=0) == {()}


def test_suspension_of_the_driver_s_machine_makes_its_trial_invalid(
    tmp_path: Path, sweep: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock that includes suspension is 30 s ahead after the second trial."""
    readings = count()
    monkeypatch.setattr(driver, "_suspended_s", lambda: 30.0 if next(readings) > 2 else 0.0)
    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    driver.execute(run, FakeLab(), lambda trial, state: None)
    [result] = [result for result in verdict.assess(run.opened_again()).values() if result.status != "ok"]
    assert result.trial == run.trials[1].trial
    assert result.reasons == ("the machine that runs dasklab was suspended for 30.0 s during the trial",)


def test_stop_of_the_driver_makes_its_trial_invalid_wherever_it_falls(
    tmp_path: Path, sweep: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = [Pause(**STOPPED | {"process": "dasklab"})]
    monkeypatch.setattr(stops, "watch_own_process", lambda: nullcontext(pauses))
    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    driver.execute(run, FakeLab(), lambda trial, state: None)
    text = (
        "the process was stopped for 20.0 s (it used 0.0 s of CPU and waited 0.0 s for one) during the trial"
    )
    assert {result.reasons for result in verdict.assess(run.opened_again()).values()} == {
        (f"dasklab: {text}",)
    }
