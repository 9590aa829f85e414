"""``dasklab advise``: candidates are marked as such, and only what the lab confirms is advice."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dasklab import records
from dasklab.cli import main
from dasklab.commands import progress, target, whatif
from dasklab.model.dask_settings import flatten
from dasklab.model.experiment import Experiment
from dasklab.model.files import Campaign
from dasklab.model.trial import Setup
from dasklab.results.storage import store
from dasklab.running import capabilities, driver, setup

from tests.unit.dasklab.conftest import SETUP, FakeLab
from tests.unit.dasklab.predict.samples import CALIBRATION
from tests.unit.dasklab.predict.test_advice import known_law, simulate_by

PLAIN = {"title": "T", "question": "Q?", "metrics": {"compute_s": None}, "runs": 6, "blocks": 2}
WITHOUT_STEALING = {"distributed": {"scheduler": {"work-stealing": False}}}
Advise = Callable[..., str]


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A measured run, ``results/plain/<time>``."""
    content = Experiment.model_validate(PLAIN)
    ongoing = driver.start(tmp_path / "results", "plain", content, SETUP, quick=False)
    driver.execute(ongoing, FakeLab(), lambda trial, state: None)
    return ongoing.directory


@pytest.fixture
def advise(measured: Path, monkeypatch: pytest.MonkeyPatch) -> Advise:
    """The command; simulations follow `known_law`. Returns exit code, output and errors."""

    def run(*argv: str, lab: FakeLab | None = None, here: Setup = SETUP) -> str:
        monkeypatch.setattr(progress, "AnsibleLab", lambda _: lab)
        monkeypatch.setattr(capabilities, "setup_of", lambda _: here)
        monkeypatch.setattr(setup, "setup_of", lambda _: here)
        results = ["--results", str(measured.parents[1])]
        result = CliRunner().invoke(main, ["advise", str(measured), "--seeds", "3", *argv, *results])
        return f"{result.exit_code} {result.stdout} {result.stderr}"

    simulate_by(monkeypatch, known_law)
    monkeypatch.setattr(progress, "locked", lambda *_, **__: nullcontext())
    monkeypatch.setattr(target, "require_machines", lambda *_: None)
    monkeypatch.setattr(records, "recorded", lambda _: True)
    monkeypatch.setattr(whatif, "calibrations_of", lambda _: (CALIBRATION,))
    return run


def seconds(trial: dict[str, Any]) -> float:
    """In the lab a run takes 20 % less without stealing; nothing else matters."""
    return 3.2 if trial["dask"] == WITHOUT_STEALING else 4.0


def lab(duration_s: Callable[[dict[str, Any]], float] = seconds) -> FakeLab:
    """A lab whose processes report the settings that they run with."""

    def report_settings(trial: dict[str, Any], files: dict[str, Any]) -> int:
        config = dict(flatten(trial["dask"]))
        files["timings.json"]["config"] = dict.fromkeys(("client", "scheduler", "worker-1"), config)
        return 0

    return FakeLab(duration_s, report_settings)


def test_simulations_yield_candidates_and_no_advice(advise: Advise, measured: Path) -> None:
    output = advise()
    assert output.startswith("0 ")
    assert "simulated candidates, not advice" in output
    assert "work-stealing=false, connections.incoming=1" in output
    assert f"dasklab advise {measured} --confirm" in output
    assert "Not searched: compression: a simulated message has no content;" in output
    assert "Advice" not in output and "confirmed" not in output


def test_advice_is_what_the_lab_confirms(advise: Advise) -> None:
    output = advise("--confirm", lab=lab())
    assert output.startswith("0 ")
    _, advice = output.split("Advice: ")
    assert advice.startswith(("19", "20", "21"))
    first, setting, after = advice.splitlines()[:3]
    assert first.endswith("% less run time with")
    assert setting == "  distributed.scheduler.work-stealing: false"
    assert "distributed" not in after  # connections helped in simulation only


def test_nothing_is_to_be_changed_where_the_lab_confirms_nothing(advise: Advise) -> None:
    output = advise("--confirm", lab=lab(lambda trial: 4.4 if trial["dask"] else 4.0))
    assert "Change nothing: the lab confirmed none of them." in output
    assert "Advice" not in output.replace("Advice for plain", "")


def test_interrupted_confirmation_is_resumed(advise: Advise, measured: Path) -> None:
    def interrupt(trial: dict[str, Any]) -> float:
        if len(first.ran) == 3:
            raise KeyboardInterrupt
        return seconds(trial)

    first, second = lab(interrupt), lab()
    assert advise("--confirm", lab=first).startswith("130 ")
    runs = list((measured.parents[1] / "advice").iterdir())
    assert "Advice: " in advise("--confirm", lab=second)
    assert list((measured.parents[1] / "advice").iterdir()) == runs
    order = store.need(Campaign, runs[0]).order
    assert sorted([*first.ran[:2], *second.ran]) == sorted(order)
    third = lab()
    assert "Advice: " in advise("--confirm", lab=third)
    assert third.ran == []


def test_json_keeps_simulated_and_measured_gains_apart(advise: Advise) -> None:
    before = json.loads(advise("--json").split("\n")[0].removeprefix("0 "))
    assert before["measured"] is None
    assert before["candidates"][0]["simulated_gain"][0] == pytest.approx(0.28)
    advise("--confirm", lab=lab())
    after = json.loads(advise("--json").split("\n")[0].removeprefix("0 "))
    assert [candidate["confirmed"] for candidate in after["measured"]] == [True, False, False]


def test_candidate_that_was_not_configured_as_requested_has_no_valid_trial(advise: Advise) -> None:
    output = advise("--confirm", lab=FakeLab(seconds))  # its processes do not report their settings
    assert output.count("no valid trial") == 3
    assert "Change nothing: the lab confirmed none of them." in output


def test_another_lab_cannot_confirm(advise: Advise) -> None:
    other = SETUP.model_copy(update={"bridge": False})
    output = advise("--confirm", lab=FakeLab(), here=other)
    assert output.startswith("1 ")
    assert "differs from the one that measured this trial" in output


def test_simulated_run_is_refused(advise: Advise, measured: Path) -> None:
    run = store.read_run(measured)
    simulated = {"origin": "r", "workloads": [], "seeds": 1}
    simulated_setup = SETUP.model_validate({**SETUP.model_dump(), "simulated": simulated})
    store.write(measured, run.model_copy(update={"setup": simulated_setup}))
    output = advise()
    assert output.startswith("1 ")
    message = "this run was simulated; costs can be taken from measured runs only"
    assert f"dasklab: {measured}: {message}\n" in output
