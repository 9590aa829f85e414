"""A trial in which a process or its machine stood still is invalid; one that only computed is not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from dasklab.model.experiment import Experiment
from dasklab.results.validity import verdict
from dasklab.running import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json

NEVER = {"process": "worker-2", "lasted_s": 20.0, "cpu_s": 0.0, "waited_s": 0.0, "suspended_s": 0.0}


def judged(measured: Callable[..., driver.ActiveRun], pause: Json, sample: int = 3) -> set[tuple[str, ...]]:
    """The reasons of all trials, in each of which this pause was."""

    def hold(trial: Json, files: Json) -> int:
        files["timings.json"]["samples"][sample]["pauses"] = [pause]
        return 0

    verdicts = verdict.assess(measured(FakeLab(spoil=hold)).directory).values()
    assert all((found.status == "invalid") == bool(found.reasons) for found in verdicts)
    return {found.reasons for found in verdicts}


def test_a_stopped_worker_makes_a_trial_invalid(measured: Callable[..., driver.ActiveRun]) -> None:
    text = "the process was stopped for 20.0 s (it used 0.0 s of CPU and waited 0.0 s for one) in run 3"
    assert judged(measured, NEVER) == {(f"worker-2: {text}",)}


def test_a_suspended_machine_makes_a_trial_invalid(measured: Callable[..., driver.ActiveRun]) -> None:
    text = "its machine was suspended for 19.0 s in run 3"
    assert judged(measured, NEVER | {"suspended_s": 19.0}) == {(f"worker-2: {text}",)}


@pytest.mark.parametrize(
    "active",
    [{"cpu_s": 19.9}, {"waited_s": 15.0}, {"cpu_s": 60.0}, {"lasted_s": 1.5}],
    ids=["computed", "waited for a CPU", "on many threads", "short"],
)
def test_a_process_that_was_active_is_part_of_what_is_measured(
    active: Json, measured: Callable[..., driver.ActiveRun]
) -> None:
    assert judged(measured, NEVER | active) == {()}


def test_a_warm_up_may_pause(measured: Callable[..., driver.ActiveRun]) -> None:
    assert judged(measured, NEVER, sample=0) == {()}


def test_a_driver_whose_machine_was_suspended_invalidates_the_trial(
    tmp_path: Path, sweep: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock that goes on meanwhile is 30 s ahead after the second trial."""
    looks = count()
    monkeypatch.setattr(driver, "_suspended_s", lambda: 30.0 if next(looks) > 2 else 0.0)
    begun = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    driver.execute(begun, FakeLab(), lambda trial, state: None)
    found = [result for result in verdict.assess(begun.directory).values() if result.status != "ok"]
    assert [result.trial for result in found] == [begun.trials[1].trial]
    assert found[0].reasons == ("the machine that runs dasklab was suspended for 30.0 s during the trial",)
