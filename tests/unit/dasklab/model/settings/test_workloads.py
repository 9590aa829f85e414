"""A user's own workload lies beside the experiment's file; the run keeps its source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dasklab.errors import LabError
from dasklab.model.experiments import experiment
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.settings import workloads
from dasklab.model.settings.trial_settings import Workload
from dasklab.results.statistics import identity
from dasklab.results.storage import documents
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import SETUP

EXPERIMENT = """
title: T
question: Q?
metrics: {compute_s: ~}
workload: {name: mywork}
"""
SOURCE = """
from _harness import Job, main
def prepare(client, tasks=100, *, slow=False):
    return Job(lambda number: 1.0, expected=1.0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an experiment of the user's and its workload."""
    (tmp_path / "my.yml").write_text(EXPERIMENT)
    (tmp_path / "mywork.py").write_text(SOURCE)
    return tmp_path


def mistake(folder: Path) -> str:
    with pytest.raises(LabError) as error:
        experiment.load(str(folder / "my.yml"))
    assert "\n" not in error.value.message
    return error.value.message


def test_workload_beside_the_file_is_in_every_trial(folder: Path) -> None:
    run = driver.start(folder / "results", *experiment.load(str(folder / "my.yml")), SETUP, quick=False)
    assert {trial.workload.source for trial in run.trials} == {SOURCE}


def test_run_resumes_with_the_source_it_began_with(folder: Path) -> None:
    begun = driver.start(folder / "results", *experiment.load(str(folder / "my.yml")), SETUP, quick=False)
    (folder / "mywork.py").unlink()
    resumed = driver.resume(begun.opened_again(), SETUP)
    assert resumed.trials == begun.trials
    documents.write(begun.stored.folder, begun.trials[0])
    assert documents.require(RequestedTrial, begun.stored.folder).workload.source == SOURCE


def test_level_may_choose_a_workload_beside_the_file(folder: Path) -> None:
    levels = "factors: {what: {sets: workload.name, levels: [idle, mywork]}}\nworkload: {}\n"
    (folder / "my.yml").write_text(EXPERIMENT.replace("workload: {name: mywork}\n", levels))
    run = driver.start(folder / "results", *experiment.load(str(folder / "my.yml")), SETUP, quick=False)
    sources = {trial.factors["what"]: trial.workload.source for trial in run.trials}
    assert sources == {"idle": None, "mywork": SOURCE}


def test_workloads_that_come_with_dasklab_have_no_source() -> None:
    assert experiment.load("baseline")[1].workload_sources == {}


def test_parameters_are_those_of_prepare(folder: Path) -> None:
    (folder / "my.yml").write_text(EXPERIMENT.replace("mywork", "mywork, params: {taks: 5}"))
    assert mistake(folder) == (
        "my.yml: workload: mywork has no parameter 'taks'; allowed: tasks, slow. Did you mean tasks?"
    )


def test_misspelt_workload_is_suggested(folder: Path) -> None:
    (folder / "my.yml").write_text(EXPERIMENT.replace("mywork", "mywrok"))
    message = mistake(folder)
    assert message.startswith("my.yml: workload: no workload 'mywrok', and no mywrok.py beside the file; ")
    assert message.endswith(". Did you mean mywork?")


@pytest.mark.parametrize("name", ["../mywork", "sub/mywork", "my.work"])
def test_workload_elsewhere_is_refused(name: str, folder: Path) -> None:
    (folder / "my.yml").write_text(EXPERIMENT.replace("mywork", name))
    assert f"no workload '{name}'" in mistake(folder)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"def prepare(client:\n", "mywork.py: line 1: '(' was never closed"),
        (b"x = 1\n", "mywork.py: it has no function prepare(client, ...)"),
        (b"# \xff\n", "mywork.py is not UTF-8"),
    ],
)
def test_file_that_is_no_workload_is_refused(content: bytes, reason: str, folder: Path) -> None:
    (folder / "mywork.py").write_bytes(content)
    assert mistake(folder) == f"my.yml: workload: {reason}"


def test_file_with_the_name_of_a_workload_of_dasklab_is_refused(folder: Path) -> None:
    (folder / "my.yml").write_text(EXPERIMENT.replace("mywork", "join"))
    (folder / "join.py").write_text(SOURCE)
    assert "join.py has the name of a workload that comes with dasklab; rename the file" in mistake(folder)


def test_runs_of_changed_workloads_are_not_compared(folder: Path) -> None:
    identities = []
    for source in (SOURCE, SOURCE.replace("100", "200")):
        (folder / "mywork.py").write_text(source)
        content = experiment.load(str(folder / "my.yml"))
        run = driver.start(folder / str(len(identities)), *content, SETUP, quick=False)
        identities.append(identity.identity(run.opened_again()))
    first, second = identities
    assert first["workload"] == second["workload"]
    assert first["workload's source"] != second["workload's source"]


def test_stored_workload_that_no_longer_exists_can_be_read() -> None:
    assert json.loads(Workload(name="retired").model_dump_json())["name"] == "retired"
    assert "no workload 'retired'" in (workloads.find_mistake("retired", (), None) or "")
