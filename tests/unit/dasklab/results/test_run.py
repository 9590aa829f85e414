"""A stored run is opened once: its values are read once, and damage is one of them."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import dasklab
import pytest
from dasklab.errors import LabError
from dasklab.model.files import Result
from dasklab.results import pack
from dasklab.results.run import Run, find_runs, open_run, open_trial

from tests.unit.dasklab.stored_run import TRIAL, previous_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return previous_run(tmp_path)


def test_a_run_offers_values(folder: Path) -> None:
    run = open_run(folder)
    [trial] = run.trials
    assert run.is_experiment and run.simulated is None and run.damaged == ()
    assert run.metrics == list(run.experiment.metrics)
    assert (trial.name, trial.requested.trial, trial.result.trial) == (TRIAL, TRIAL, TRIAL)
    assert trial.is_valid and trial.damage is None
    assert trial.timings is not None
    assert trial.durations_s == [repeat.duration_s for repeat in trial.timings.samples if not repeat.warmup]


def test_a_document_is_read_once(folder: Path) -> None:
    run = open_run(folder)
    [trial] = run.trials
    timings = trial.timings
    (folder / TRIAL / "timings.json").unlink()
    assert trial.timings is timings and run.trials == (trial,)


def test_a_damaged_trial_is_left_out_and_says_why(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / TRIAL / "result.json").write_text("{")
    run = open_run(folder)
    [damaged] = run.damaged
    assert run.trials == () and damaged.damage is not None
    assert damaged.damage.startswith(f"{folder / TRIAL / 'result.json'}: not JSON")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    with pytest.raises(LabError, match="not JSON"):
        damaged.require_whole()


def test_a_trial_and_a_record_open_as_runs_of_one_trial(folder: Path, tmp_path: Path) -> None:
    alone = open_run(folder / TRIAL)
    assert not alone.is_experiment and alone.single.requested.trial == TRIAL
    record = tmp_path / "record"
    record.mkdir()
    (record / "record.json").write_text("{}")
    opened = open_run(record)
    assert opened.trials == (opened.single,) and opened.single.folder == record
    with pytest.raises(LabError, match="a run of an experiment; name one of its trials"):
        open_run(folder).single  # noqa: B018  # it is refused


def test_a_message_names_a_run_below_the_working_folder_by_a_short_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An absolute path is broken over two lines of a terminal, and cannot be pasted."""
    assert str(open_run(folder)) == str(folder)
    monkeypatch.chdir(folder.parent)
    assert str(open_run(folder)) == folder.name


def test_a_trial_in_place_of_a_run_is_named(folder: Path) -> None:
    with pytest.raises(LabError, match=f"this is a trial; name its run, {folder}"):
        open_run(folder / TRIAL).document  # noqa: B018  # it is refused


def test_a_pack_opens_as_its_folder_does(folder: Path, tmp_path: Path) -> None:
    file = pack.pack(folder, tmp_path / "run.zip")
    assert open_run(file).document == open_run(folder).document
    assert open_trial(file / TRIAL).requested == open_run(folder).trials[0].requested


def test_names_that_lead_out_of_the_run_are_refused(folder: Path) -> None:
    document = folder / "experiment.json"
    document.write_text(document.read_text().replace(f'"{TRIAL}"', '"../elsewhere"'))
    with pytest.raises(LabError, match=r"'\.\./elsewhere' leads out of its folder"):
        open_run(folder)


def test_runs_that_cannot_be_read_are_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = folder.parent / "broken"
    broken.mkdir()
    (broken / "experiment.json").write_text("[]")
    assert [run.folder for run in find_runs(folder.parent)] == [folder]
    assert "a JSON object is expected, this is a list; the run is left out" in caplog.text


def test_invariants_of_stored_runs_hold(folder: Path) -> None:
    run = open_run(folder)
    run.validate()
    trial = run.trials[0]
    trial.write(trial.result.model_copy(update={"trial": "another"}))
    reopened = Run(folder)
    assert reopened.trials == () and len(reopened.damaged) == 1
    assert reopened.damaged[0].require(Result).trial == "another"


def test_a_promise_that_does_not_hold_is_named(folder: Path) -> None:
    trial = open_run(folder).trials[0]
    assert trial.timings is not None
    trial.timings = trial.timings.model_copy(update={"samples": trial.timings.samples[::-1]})
    with pytest.raises(ValueError, match=r"repeats are sorted by start, but not here"):
        trial.validate()


@pytest.mark.parametrize("package", ["breakdown", "commands", "comparison", "report"])
def test_values_of_a_run_are_used_and_not_its_folder(package: str) -> None:
    files = (Path(dasklab.__file__).parent / package).rglob("*.py")
    assert [file.name for file in files if re.search(r"\.folder\b", file.read_text())] == []
