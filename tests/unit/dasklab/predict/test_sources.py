"""Costs are taken from all trials of one setting, the baseline's or what is next to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dasklab import record
from dasklab.errors import LabError
from dasklab.model.experiment import Experiment
from dasklab.model.files import Result
from dasklab.model.trial import Trial
from dasklab.predict.sources import baseline, sources
from dasklab.results.storage import store
from dasklab.running import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab

WORK = {
    "array": {},
    "tiny": {"workload": {"name": "merge", "params": {"tasks": 7}}},
}
CHANGE = {
    "100M": {"nics": {"cluster": {"rate_mbit": 100}}},
    "none": {},
    "100M, 1x2": {"nics": {"cluster": {"rate_mbit": 100}}, "layout": "1x2"},
}
Run = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Measure two workloads and three changes in two blocks; what Dask recorded is there of all trials."""

    def measure(name: str = "mine", **changes: object) -> Path:
        factors = {"work": {"levels": WORK}, "change": {"levels": CHANGE}}
        asked = {"title": "T", "question": "Q?", "metrics": {"compute_s": None}, "runs": 5, "blocks": 2}
        content = Experiment.model_validate(asked | {"factors": factors} | changes)
        begun = driver.start(tmp_path, name, content, SETUP, quick=False)
        driver.execute(begun, FakeLab(), lambda trial, state: None)
        return begun.directory

    monkeypatch.setattr(record, "recorded", lambda folder: True)
    return measure


def told(folders: list[Path]) -> list[tuple[str, bool]]:
    trials = [store.need(Trial, folder) for folder in folders]
    return [(trial.cell, trial.null) for trial in trials]


def test_the_baselines_workload_has_its_null_trials_too_and_comes_first(run: Run) -> None:
    found = list(sources(run()).values())
    # the baseline is the first cell, with a cap; the other workload's trials next to it have the same
    cell = "work=array,change=100M"
    assert sorted(told(found[0])) == [(cell, False)] * 2 + [(cell, True)] * 2
    assert told(found[1]) == [("work=tiny,change=100M", False)] * 2


def test_what_is_next_to_the_baseline_differs_in_the_fewest_settings(run: Run) -> None:
    path = run()
    for folder in store.finished(path):
        trial = store.need(Trial, folder)
        if trial.cell == "work=tiny,change=100M":
            spoilt = store.need(Result, folder).model_copy(update={"status": "invalid"})
            store.write(folder, spoilt)
    # two settings are others than the baseline's: its work, and the rate or the layout; in the run's order
    cells = {cell for cell, _ in told(list(sources(path).values())[1])}
    assert len(cells) == 1 and cells < {"work=tiny,change=none", "work=tiny,change=100M, 1x2"}


def test_a_trial_is_itself_and_no_other(run: Run) -> None:
    folder = store.finished(run())[3]
    assert baseline(folder) == [folder] and list(sources(folder).values()) == [[folder]]


def test_invalid_trials_and_faults_are_no_source(run: Run) -> None:
    path = run()
    for folder in baseline(path)[1:]:
        store.write(folder, store.need(Result, folder).model_copy(update={"status": "invalid"}))
    assert len(baseline(path)) == 1
    faulty = run("faulty", faults=[{"host": "worker-1", "does": "cut", "at_s": 1, "for_s": 1}])
    with pytest.raises(LabError, match="of no valid trial that can be simulated anything was recorded"):
        baseline(faulty)
