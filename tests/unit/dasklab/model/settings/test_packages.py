"""Versions of packages as a factor: the request, the environment that it needs, and what runs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.model.experiments import experiment
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Timings
from dasklab.model.settings import packages
from dasklab.results.validity.cluster import differences
from dasklab.running.plan.trials import plan

from tests.unit.dasklab.conftest import SETUP, Json
from tests.unit.dasklab.results.trials import EXPERIMENT, files_of, trial

PINNED, OLD = packages.pins()["dask"], "2024.8.0"


def with_packages(**versions: str) -> RequestedTrial:
    return trial(packages=versions)


def reasons(requested: RequestedTrial, reported: dict[str, dict[str, str]]) -> list[str]:
    """Return the differences of a trial whose processes report these packages."""
    timings = files_of(requested)["timings.json"] | {"packages": reported}
    return list(differences(requested, Timings.model_validate(timings)))


def test_distributed_has_the_version_of_dask_and_nothing_else_changes() -> None:
    assert with_packages(dask=OLD).environment == {"dask": OLD, "distributed": OLD}
    assert with_packages(dask=OLD, tornado="6.5.1").environment == {
        "dask": OLD,
        "distributed": OLD,
        "tornado": "6.5.1",
    }
    assert with_packages().environment == {}


@pytest.mark.parametrize(
    ("setting", "package"),
    [("performance_report", {"bokeh": packages.BOKEH}), ("py_spy", {"py-spy": packages.PY_SPY})],
)
def test_tool_is_installed_only_if_a_trial_requests_it(setting: str, package: Json) -> None:
    requested: dict[str, Any] = {setting: True}
    assert trial(**requested).environment == package
    assert not package.keys() & packages.pins().keys()


@pytest.mark.parametrize("template", ["dasklab_scheduler.sh.j2", "dasklab_workers.sh.j2"])
def test_environment_needs_no_program_but_python(template: str) -> None:
    """An environment with other packages than Dask's has no program ``dask``."""
    text = (packages.ROLES / "dask" / "templates" / template).read_text()
    assert set(re.findall(r"dask_venv \}\}/bin/(\w+)", text)) == {"python"}


def test_pinned_version_needs_no_environment_but_is_read_back() -> None:
    requested = with_packages(dask=PINNED)
    assert requested.environment == {}
    assert reasons(requested, {"scheduler": {"dask": PINNED}}) == []
    assert reasons(requested, {"scheduler": {"dask": OLD}}) == [
        f"scheduler: requested dask {PINNED}, it runs with {OLD}"
    ]


def test_process_with_another_version_makes_its_trial_invalid() -> None:
    requested, old = with_packages(dask=OLD), {"dask": OLD, "distributed": OLD}
    assert reasons(requested, {"client": old, "scheduler": old, "worker-1": old}) == []
    assert reasons(requested, {"client": old, "worker-1": old | {"distributed": PINNED}}) == [
        f"worker-1: requested distributed {OLD}, it runs with {PINNED}"
    ]
    assert reasons(requested, {}) == [
        f"requested dask {OLD}, distributed {OLD}, but versions were not read back"
    ]
    assert reasons(with_packages(), {}) == []


def test_dask_that_is_too_old_is_unsupported_and_other_levels_run() -> None:
    levels = [PINNED, "2024.7.1", OLD]
    factors = {"dask": {"sets": "packages.dask", "levels": levels}}
    trials = plan("x", Experiment.model_validate(EXPERIMENT | {"factors": factors, "blocks": 1}), SETUP)
    reasons = {trial.factors["dask"]: trial.unsupported for trial in trials if trial.unsupported}
    assert reasons == {
        "2024.7.1": (f"dask 2024.7.1: the recorder and the read-back need {packages.OLDEST} or later",)
    }


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({"dsak": OLD}, "packages: no package 'dsak'; allowed: click, "),
        ({"distributed": OLD}, "packages: distributed always has dask's version; request dask"),
        ({"dask": "newest"}, "packages: dask: a version looks like 2024.8.0, got 'newest'"),
        ({"dask": 2024.8}, "packages.dask: should be a valid string, got 2024.8"),
    ],
)
def test_invalid_version_is_refused_in_one_line(versions: Json, message: str) -> None:
    with pytest.raises(LabError, match=re.escape(f"mine.yml: {message}")):
        experiment.check(EXPERIMENT | {"packages": versions}, "mine.yml")


def test_experiment_versions_has_each_version_in_each_block() -> None:
    _, versions = experiment.load("versions")
    trials = plan("versions", versions, SETUP)
    for block in (1, 2):
        levels = [t.factors["dask"] for t in trials if t.block == block and not t.null]
        assert len(set(levels)) == 5 and levels != sorted(levels)
    assert {t.factors["dask"] for t in trials if t.baseline or t.null} == {PINNED}


def test_every_pin_is_exact() -> None:
    lines = [line.partition("#")[0].strip() for line in packages.PINS.read_text().splitlines()]
    pins = [line for line in lines if line]
    assert {"dask==2026.8.0", "distributed==2026.8.0", "numpy==2.4.6"} <= set(pins)
    assert all(line.count("==") == 1 for line in pins)
