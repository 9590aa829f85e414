"""Versions of packages as a factor: what is asked, what it resolves to, what runs."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dasklab import wheels
from dasklab.errors import LabError
from dasklab.model import experiment, packages
from dasklab.model.experiment import Experiment
from dasklab.model.files import Timings
from dasklab.results.statistics import identity
from dasklab.results.validity.cluster import differences
from dasklab.running.trials import plan

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json, answers

DOCUMENT: Json = {"title": "", "question": "", "metrics": {"rtt_ms": None}}
PINNED, OLD = "2026.8.0", "2024.8.0"


def asked(**named: str) -> Any:
    return plan("x", Experiment.model_validate(DOCUMENT | {"packages": named}), SETUP)[0]


def said(trial: Any, found: dict[str, dict[str, str]]) -> list[str]:
    told = answers(json.loads(trial.to_json()), 1.0, random.Random(1))["timings.json"]
    return list(differences(trial, Timings.model_validate(told | {"packages": found})))


def test_a_version_of_dask_is_that_of_distributed_and_nothing_else_changes() -> None:
    assert asked(dask=OLD).environment == {"dask": OLD, "distributed": OLD}
    assert asked(dask=OLD, tornado="6.5.1").environment == {
        "dask": OLD,
        "distributed": OLD,
        "tornado": "6.5.1",
    }
    assert asked().environment == {}


def test_what_dask_s_own_report_takes_is_there_only_where_it_is_asked_for() -> None:
    trial = plan("x", Experiment.model_validate(DOCUMENT | {"performance_report": True}), SETUP)[0]
    assert trial.environment == {"bokeh": packages.BOKEH}
    assert "bokeh" not in packages.pins()


def test_what_looks_at_processes_is_there_only_where_it_is_asked_for() -> None:
    trial = plan("x", Experiment.model_validate(DOCUMENT | {"py_spy": True}), SETUP)[0]
    assert trial.environment == {"py-spy": packages.PY_SPY}


@pytest.mark.parametrize("template", ["seat.sh.j2", "workers.sh.j2"])
def test_nothing_but_python_is_looked_for_in_an_environment(template: str) -> None:
    """One that has other packages than Dask's has no program ``dask``."""
    text = (packages.ROLES / "dask" / "templates" / template).read_text()
    assert set(re.findall(r"/bin/(\w+)", text)) - {"sh"} == {"python"}


def test_the_pinned_version_is_the_pins_own_environment_and_is_read_back_all_the_same() -> None:
    trial = asked(dask=PINNED)
    assert trial.environment == {}
    assert said(trial, {"scheduler": {"dask": PINNED}}) == []
    assert said(trial, {"scheduler": {"dask": OLD}}) == [
        f"scheduler: requested dask {PINNED}, it runs with {OLD}"
    ]


def test_a_process_of_another_version_makes_its_trial_invalid() -> None:
    trial, both = asked(dask=OLD), {"dask": OLD, "distributed": OLD}
    assert said(trial, {"client": both, "scheduler": both, "worker-1": both}) == []
    assert said(trial, {"client": both, "worker-1": both | {"distributed": PINNED}}) == [
        f"worker-1: requested distributed {OLD}, it runs with {PINNED}"
    ]
    assert said(trial, {}) == [f"requested dask {OLD}, distributed {OLD}, but versions were not read back"]
    assert said(asked(), {}) == []


def test_a_dask_that_is_too_old_is_unsupported_and_the_rest_goes_on() -> None:
    levels = [PINNED, "2024.7.1", OLD]
    given = DOCUMENT | {"factors": {"dask": {"sets": "packages.dask", "levels": levels}}, "blocks": 1}
    trials = plan("x", Experiment.model_validate(given), SETUP)
    lost = {trial.factors["dask"]: trial.unsupported for trial in trials if trial.unsupported}
    assert lost == {
        "2024.7.1": ("dask 2024.7.1: what runs inside it and what is read back need 2024.8.0 or later",)
    }


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"dsak": OLD}, "packages: no package 'dsak'; allowed: click, "),
        ({"distributed": OLD}, "packages: distributed is of dask's version; give dask's"),
        ({"dask": "newest"}, "packages: dask: a version is as 2024.8.0, got 'newest'"),
        ({"dask": 2024.8}, "packages.dask: should be a valid string, got 2024.8"),
    ],
)
def test_what_versions_may_be_is_said_in_a_line(given: Json, line: str) -> None:
    with pytest.raises(LabError, match=re.escape(f"mine.yml: {line}")):
        experiment.check(DOCUMENT | {"packages": given}, "mine.yml")


def test_the_experiment_has_every_version_in_each_block() -> None:
    _, versions = experiment.load("versions")
    trials = plan("versions", versions, SETUP)
    for block in (1, 2):
        levels = [t.factors["dask"] for t in trials if t.block == block and not t.null]
        assert len(set(levels)) == 5 and levels != sorted(levels)
    assert {t.factors["dask"] for t in trials if t.baseline or t.null} == {packages.pins()["dask"]}


def test_runs_are_compared_by_what_their_baselines_ran_with(tmp_path: Path, measured: Any) -> None:
    """A trial of another version, which may come first, must not make two runs of an experiment strangers."""

    def older(trial: Json, files: Json) -> int:
        files["timings.json"]["versions"]["dask"] = PINNED if trial["baseline"] else OLD
        return 0

    run = measured(FakeLab(spoil=older))
    assert identity.identity(run.directory)["dask"] == PINNED


def test_what_is_there_already_is_not_downloaded_again() -> None:
    found = {**packages.pins(), "dask": OLD, "distributed": OLD, "urllib3": "2.8.0"}
    assert wheels.not_pinned(found) == {"dask": OLD, "distributed": OLD, "urllib3": "2.8.0"}


def pip(monkeypatch: pytest.MonkeyPatch, stderr: str = "") -> list[list[str]]:
    """A pip that finds dask and nothing else, or complains; returns what it was told."""
    told: list[list[str]] = []

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        told.append(words)
        if "--report" in words:
            install = [{"metadata": {"name": "dask", "version": OLD}}]
            Path(words[words.index("--report") + 1]).write_text(json.dumps({"install": install}))
        else:
            folder = Path(words[words.index("--dest") + 1])
            folder.mkdir()
            (folder / "dask.whl").touch()
        return subprocess.CompletedProcess(words, bool(stderr), "", stderr)

    monkeypatch.setattr(wheels.subprocess, "run", run)
    return told


def test_wheels_are_downloaded_once_with_the_other_pins_as_constraints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path))
    told = pip(monkeypatch)
    wheelhouse = wheels.fetch({"dask": OLD, "distributed": OLD})
    assert wheels.fetch({"distributed": OLD, "dask": OLD}) == wheelhouse
    assert wheels.wheelhouse({"dask": PINNED}) != wheelhouse
    assert [words[3] for words in told] == ["install", "download"]
    assert f"dask=={OLD}" in told[0] and f"tornado=={packages.pins()['tornado']}" in told[0]
    assert sorted(path.name for path in wheelhouse.iterdir()) == ["dask.whl", "requirements.txt"]
    assert (wheelhouse / "requirements.txt").read_text() == f"dask=={OLD}\n"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            "(from versions: 1.0)\nERROR: No matching distribution found for dask==2",
            wheels.NoSuchPackagesError,
        ),
        ("  x (from versions: none)\nERROR: No matching distribution found for dask", LabError),
        ("ERROR: ResolutionImpossible: for help", wheels.NoSuchPackagesError),
        ("ERROR: HTTP error 503", LabError),
    ],
)
def test_that_there_is_no_such_version_is_told_from_that_nobody_answered(said: str, kind: type) -> None:
    assert type(wheels.pip_error(said)) is kind


def test_of_what_pip_says_the_line_that_is_short_is_told() -> None:
    """The other one names every version that there ever was."""
    said = "ERROR: Could not find a version (from versions: 0.7, 0.8)\n"
    said += "ERROR: No matching distribution found for dask==9"
    assert wheels.pip_error(said).message == "No matching distribution found for dask==9"


def test_no_such_version_is_the_exit_status_of_what_cannot_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path))
    pip(monkeypatch, "WARNING: x\nERROR: No matching distribution found for dask==2024.8.9")
    monkeypatch.setattr(wheels.sys, "argv", ["wheels", '{"dask": "2024.8.9"}'])
    with pytest.raises(SystemExit) as ended:
        wheels.main()
    assert ended.value.code == 3
    assert capsys.readouterr().err == "No matching distribution found for dask==2024.8.9\n"


def test_every_pin_is_exact() -> None:
    lines = [line.partition("#")[0].strip() for line in packages.PINS.read_text().splitlines()]
    pins = [line for line in lines if line]
    assert {"dask==2026.8.0", "distributed==2026.8.0", "numpy==2.4.6"} <= set(pins)
    assert all(line.count("==") == 1 for line in pins)
