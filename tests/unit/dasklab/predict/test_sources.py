"""Costs are taken from all trials of one setting: the baseline's, or the one closest to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dasklab import records
from dasklab.errors import LabError
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.files import Result
from dasklab.predict.sources import baseline, sources
from dasklab.results.run import Run, Trial
from dasklab.results.storage import documents
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab

WORKLOADS = {
    "array": {},
    "tiny": {"workload": {"name": "merge", "params": {"tasks": 7}}},
}
CHANGES = {
    "100M": {"nics": {"cluster": {"rate_mbit": 100}}},
    "none": {},
    "100M, 1x2": {"nics": {"cluster": {"rate_mbit": 100}}, "layout": "1x2"},
}
Measure = Callable[..., Path]


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Measure two workloads with three changes in two blocks. All trials have Dask's records."""

    def run(name: str = "mine", **changes: object) -> Path:
        factors = {"work": {"levels": WORKLOADS}, "change": {"levels": CHANGES}}
        common = {"title": "T", "question": "Q?", "metrics": {"compute_s": None}, "repeats": 5, "blocks": 2}
        content = Experiment.model_validate(common | {"factors": factors} | changes)
        ongoing = driver.start(tmp_path, name, content, SETUP, quick=False)
        driver.execute(ongoing, FakeLab(), lambda trial, state: None)
        return ongoing.stored.folder

    monkeypatch.setattr(records, "recorded", lambda folder: True)
    return run


def invalidate(folder: Path) -> None:
    documents.write(folder, documents.require(Result, folder).model_copy(update={"status": "invalid"}))


def cells(trials: list[Trial]) -> list[tuple[str, bool]]:
    """Return each trial's cell, and whether it is a null trial."""
    return [(trial.requested.cell, trial.requested.null) for trial in trials]


def test_baselines_workload_comes_first_and_includes_its_null_trials(measure: Measure) -> None:
    array, tiny = sources(Run(measure())).values()
    cell = "work=array,change=100M"
    assert sorted(cells(array)) == [(cell, False)] * 2 + [(cell, True)] * 2
    # The setting of the other workload that is closest to the baseline's has the same rate cap
    assert cells(tiny) == [("work=tiny,change=100M", False)] * 2


def test_closest_setting_differs_in_the_fewest_values(measure: Measure) -> None:
    path = measure()
    for trial in Run(path).trials:
        if trial.requested.cell == "work=tiny,change=100M":
            invalidate(trial.folder)
    # Two settings remain that differ in two values: the workload, and the rate cap or the layout
    names = {cell for cell, _ in cells(list(sources(Run(path)).values())[1])}
    assert len(names) == 1 and names < {"work=tiny,change=none", "work=tiny,change=100M, 1x2"}


def test_source_of_a_trial_is_the_trial_itself(measure: Measure) -> None:
    alone = Run(Run(measure()).trials[3].folder)
    assert baseline(alone) == [alone.single] and list(sources(alone).values()) == [[alone.single]]


def test_invalid_trials_and_trials_with_faults_are_no_sources(measure: Measure) -> None:
    path = measure()
    for trial in baseline(Run(path))[1:]:
        invalidate(trial.folder)
    assert len(baseline(Run(path))) == 1
    faulty = measure("faulty", faults=[{"host": "worker-1", "does": "cut", "at_s": 1, "for_s": 1}])
    with pytest.raises(LabError, match="no valid trial that can be simulated has records of Dask"):
        baseline(Run(faulty))
