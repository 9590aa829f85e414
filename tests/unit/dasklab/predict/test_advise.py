"""``dasklab advise``: candidates are marked as such, and only what the lab confirms is advice."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dasklab import record
from dasklab.cli import main
from dasklab.commands import progress, target, whatif
from dasklab.model.dask_settings import flatten
from dasklab.model.experiment import Experiment
from dasklab.model.files import Campaign
from dasklab.model.trial import Setup
from dasklab.results.storage import store
from dasklab.running import driver, setup

from tests.unit.dasklab.conftest import SETUP, FakeLab
from tests.unit.dasklab.predict.test_advice import saves, stand_in
from tests.unit.dasklab.predict.test_whatif import CALIBRATION

PLAIN = {"title": "T", "question": "Q?", "metrics": {"compute_s": None}, "runs": 6, "blocks": 2}
Ask = Callable[..., str]
STILL = {"distributed": {"scheduler": {"work-stealing": False}}}


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A measured run, ``results/plain/<time>``."""
    begun = driver.start(tmp_path / "results", "plain", Experiment.model_validate(PLAIN), SETUP, quick=False)
    driver.execute(begun, FakeLab(), lambda trial, state: None)
    return begun.directory


@pytest.fixture
def ask(measured: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The command, where simulations follow a law and the lab is the one that is given."""

    def run(*argv: str, lab: FakeLab | None = None, here: Setup = SETUP) -> str:
        monkeypatch.setattr(progress, "AnsibleLab", lambda _: lab)
        monkeypatch.setattr(progress, "setup_of", lambda _: here)
        monkeypatch.setattr(setup, "setup_of", lambda _: here)
        results = ["--results", str(measured.parents[1])]
        done = CliRunner().invoke(main, ["advise", str(measured), "--seeds", "3", *argv, *results])
        return f"{done.exit_code} {done.stdout} {done.stderr}"

    stand_in(monkeypatch, saves)
    monkeypatch.setattr(progress, "locked", lambda *_, **__: nullcontext())
    monkeypatch.setattr(target, "require_machines", lambda *_: None)
    monkeypatch.setattr(record, "recorded", lambda _: True)
    monkeypatch.setattr(whatif, "calibrations_of", lambda _: (CALIBRATION,))
    return run


def seconds(trial: dict[str, Any]) -> float:
    """What a run takes in the lab: a fifth less without stealing, whatever else is set."""
    return 3.2 if trial["dask"] == STILL else 4.0


def lab(takes: Callable[[dict[str, Any]], float] = seconds) -> FakeLab:
    """One whose processes say what they run with."""

    def said(trial: dict[str, Any], files: dict[str, Any]) -> int:
        config = dict(flatten(trial["dask"]))
        files["timings.json"]["config"] = dict.fromkeys(("client", "scheduler", "worker-1"), config)
        return 0

    return FakeLab(takes, said)


def test_without_the_lab_there_are_candidates_and_no_advice(ask: Ask, measured: Path) -> None:
    said = ask()
    assert said.startswith("0 ")
    assert "simulated candidates, not advice" in said
    assert "work-stealing=false, connections.incoming=1" in said
    assert f"dasklab advise {measured} --confirm" in said
    assert "Not searched: compression: a simulated message has no content;" in said
    assert "Advice" not in said and "confirmed" not in said


def test_only_what_the_lab_confirms_is_advice(ask: Ask) -> None:
    said = ask("--confirm", lab=lab())
    assert said.startswith("0 ")
    _, advice = said.split("Advice, ")
    assert advice.startswith(("19", "20", "21"))
    first, setting, after = advice.splitlines()[:3]
    assert first.endswith("% less time than as it was:")
    assert setting == "  distributed.scheduler.work-stealing: false"
    assert "distributed" not in after  # connections helped in simulation only


def test_where_the_lab_confirms_nothing_nothing_is_to_be_changed(ask: Ask) -> None:
    said = ask("--confirm", lab=lab(lambda trial: 4.4 if trial["dask"] else 4.0))
    assert "Change nothing: the lab confirmed none of them." in said
    assert "Advice" not in said.replace("Advice for plain", "")


def test_an_interrupted_confirmation_goes_on(ask: Ask, measured: Path) -> None:
    def stop(trial: dict[str, Any]) -> float:
        if len(first.ran) == 3:
            raise KeyboardInterrupt
        return seconds(trial)

    first, second = lab(stop), lab()
    assert ask("--confirm", lab=first).startswith("130 ")
    runs = list((measured.parents[1] / "advice").iterdir())
    assert "Advice, " in ask("--confirm", lab=second)
    assert list((measured.parents[1] / "advice").iterdir()) == runs
    done = store.need(Campaign, runs[0]).order
    assert sorted([*first.ran[:2], *second.ran]) == sorted(done)
    third = lab()
    assert "Advice, " in ask("--confirm", lab=third)
    assert third.ran == []


def test_programs_read_candidates_and_what_the_lab_said_apart(ask: Ask) -> None:
    before = json.loads(ask("--json").split("\n")[0].removeprefix("0 "))
    assert before["measured"] is None
    assert before["candidates"][0]["simulated_gain"][0] == pytest.approx(0.28)
    ask("--confirm", lab=lab())
    after = json.loads(ask("--json").split("\n")[0].removeprefix("0 "))
    assert [one["confirmed"] for one in after["measured"]] == [True, False, False]


def test_a_candidate_that_was_not_measured_as_asked_is_told_as_such(ask: Ask) -> None:
    said = ask("--confirm", lab=FakeLab(seconds))  # nobody there says what it runs with
    assert said.count("no valid trial") == 3
    assert "Change nothing: the lab confirmed none of them." in said


def test_another_lab_does_not_confirm(ask: Ask) -> None:
    other = SETUP.model_copy(update={"bridge": False})
    said = ask("--confirm", lab=FakeLab(), here=other)
    assert said.startswith("1 ")
    assert "is not as the one that measured it" in said


def test_a_simulated_run_is_no_source(ask: Ask, measured: Path) -> None:
    run = store.read_run(measured)
    simulated = {"origin": "r", "workloads": [], "seeds": 1}
    there = SETUP.model_validate({**SETUP.model_dump(), "simulated": simulated})
    store.write(measured, run.model_copy(update={"setup": there}))
    said = ask()
    assert said.startswith("1 ")
    assert f"dasklab: {measured}: it was simulated itself; costs are taken from measured runs\n" in said
