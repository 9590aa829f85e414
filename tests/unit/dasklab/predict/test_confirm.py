"""What a lab says of candidates, on samples whose answer is known; and which experiment asks it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from dasklab.errors import LabError
from dasklab.model import experiment as experiments
from dasklab.model.experiment import Experiment
from dasklab.model.files import Campaign
from dasklab.model.trial import Trial
from dasklab.predict import confirm
from dasklab.predict.advice import Candidate
from dasklab.results.storage import store
from dasklab.running import driver
from dasklab.running.trials import plan

from tests.unit.dasklab.conftest import SETUP

SATURATED = Candidate((("distributed.scheduler.worker-saturation", 1.0),))
STILL = Candidate((("distributed.scheduler.work-stealing", False),))
SOURCE = {
    "title": "Caps",
    "question": "Q?",
    "metrics": {"compute_s": None},
    "factors": {"rate_mbit": {"sets": "nics.cluster.rate_mbit", "levels": [100, 300]}},
    "workload": {"name": "array_study", "params": {"size": 2000, "chunk": 500}},
    "dask": {"distributed": {"scheduler": {"work-stealing-interval": "2s"}}},
    "runs": 5,
    "blocks": 3,
    "capture": True,
    "probes": {"pings": 5},
}


def campaign(source: dict[str, Any] = SOURCE) -> tuple[Campaign, Trial]:
    """A run of it, and the trial of 300 Mbit/s."""
    asked = experiments.check(source, "caps.yml")
    trials = plan("caps", asked, SETUP)
    run = Campaign(
        name="caps",
        quick=False,
        seed=1,
        only=None,
        order=tuple(trial.trial for trial in trials),
        git_revision=None,
        setup=SETUP,
        experiment=asked.model_dump(mode="json", exclude_unset=True),
    )
    return run, next(trial for trial in trials if trial.factors == {"rate_mbit": 300})


def confirming(**options: int | None) -> Experiment:
    run, trial = campaign()
    return confirm.experiment(run, trial, [SATURATED, STILL], **{"runs": None, "blocks": None} | options)


def test_the_trial_is_measured_as_it_was_beside_the_candidates_and_a_null_trial() -> None:
    trials = [trial for trial in plan("advice", confirming(), SETUP) if trial.block == 1]
    assert {trial.cell for trial in trials} == {
        "change=as it was",
        "change=worker-saturation=1.0",
        "change=work-stealing=false",
    }
    assert sum(trial.null for trial in trials) == 1
    by_cell = {trial.cell: trial for trial in trials if not trial.null}
    base = by_cell["change=as it was"]
    assert base.baseline
    asked = campaign()[1]
    alike = {"workload", "nics", "links", "bridge", "workers", "runs", "warmups", "dask", "probes", "layout"}
    assert base.model_dump(include=alike) == asked.model_dump(include=alike)
    scheduler = by_cell["change=worker-saturation=1.0"].dask["distributed"]["scheduler"]
    assert scheduler == {"work-stealing-interval": "2s", "worker-saturation": 1.0}
    assert not any(trial.captured_runs for trial in trials)


def test_how_often_is_as_it_was_or_as_is_asked_for() -> None:
    assert (confirming().runs, confirming().blocks) == (5, 3)
    assert (confirming(runs=8, blocks=1).runs, confirming(runs=8, blocks=1).blocks) == (8, 1)


def test_its_file_is_one_that_run_takes_and_means_the_same(tmp_path: Path) -> None:
    asked = confirming()
    path = confirm.write(tmp_path, asked)
    name, content = experiments.load(str(path))
    assert (name, content) == ("advice", asked)
    assert yaml.safe_load(path.read_text())["factors"]["change"]["levels"]["as it was"] == {}


def test_a_run_of_just_this_experiment_is_gone_on_with(tmp_path: Path) -> None:
    assert confirm.begun(tmp_path, confirming()) is None
    run = driver.start(tmp_path, confirm.NAME, confirming(), SETUP, quick=False).directory
    assert confirm.begun(tmp_path, confirming()) == run
    assert confirm.begun(tmp_path, confirming(runs=7)) is None


def frame(cells: dict[str, list[float]], null: list[float] | None, status: str = "ok") -> pd.DataFrame:
    """A sample of each cell in each block, by its level; the first is the baseline."""
    rows = []
    for place, (level, samples) in enumerate(cells.items()):
        rows += [(level, place == 0, False, *sample) for sample in enumerate(samples)]
    rows += [(next(iter(cells)), False, True, *sample) for sample in enumerate(null or [])]
    found = pd.DataFrame(rows, columns=["change", "baseline", "null", "block", "value"])
    same: dict[str, Any] = {
        "metric": "compute_s",
        "warmup": False,
        "status": status,
        "tested": True,
        "src": "",
        "dst": "",
        "prediction_error": 0.0,
        "workload": "merge",
    }
    return found.assign(cell="change=" + found.change, **same)


NOW = [10.0, 10.1, 9.9, 10.0, 10.05, 9.95]
NULL = [10.2, 10.3, 10.1, 10.2, 10.25, 10.15]
BETTER = [8.0, 8.1, 7.9, 8.0, 8.05, 7.95]
NAMES = {"better": SATURATED.name, "other": STILL.name}


def judged(other: list[float], null: list[float] | None = NULL) -> confirm.Verdicts:
    cells = {"as it was": NOW, NAMES["better"]: BETTER, NAMES["other"]: other}
    return confirm.judge(frame(cells, null), [STILL, SATURATED])


def test_what_saves_more_than_noise_is_confirmed_with_its_gain() -> None:
    better, other = judged([10.0, 10.1, 9.9, 10.02, 9.98, 10.0]).of
    assert (better.name, better.confirmed) == (SATURATED.name, True)
    assert better.gain.value == pytest.approx(
        1 - 8.0 / math.sqrt(10.0 * 10.2), abs=0.002
    )  # the null trial is a baseline
    assert 0.18 < better.gain.low < better.gain.value < better.gain.high < 0.24
    assert dict(better.settings) == {"distributed.scheduler.worker-saturation": 1.0}
    assert (other.name, other.confirmed) == (STILL.name, False)


def test_what_is_smaller_than_what_chance_makes_is_not_confirmed() -> None:
    little = [10.05, 9.8, 10.2, 9.9, 10.1, 9.85]  # 1 %, between equal trials 2 %
    assert [one.confirmed for one in judged(little).of] == [True, False]
    calm = frame({"as it was": [10.0, 10.1], STILL.name: [9.8, 9.9]}, [10.0, 10.1])
    assert [one.confirmed for one in confirm.judge(calm, [STILL]).of] == [True]


def test_what_takes_longer_is_never_advice() -> None:
    worse = judged([13.0, 13.1, 12.9, 13.0, 13.05, 12.95]).of[1]
    assert worse.gain.value == pytest.approx(-0.287, abs=0.001)
    assert not worse.confirmed


def test_the_floor_is_the_smallest_share_that_would_be_shown() -> None:
    assert 0.01 <= judged(NOW).floor < 0.03


def test_without_a_null_trial_or_a_baseline_nothing_is_confirmed() -> None:
    with pytest.raises(LabError, match="no valid null trial: nothing is confirmed"):
        judged(NOW, null=None)
    with pytest.raises(LabError, match="no valid baseline: nothing is confirmed"):
        confirm.judge(frame({"as it was": NOW, STILL.name: NOW}, NULL, "invalid"), [STILL])


def test_a_candidate_without_a_valid_trial_is_last_and_not_confirmed() -> None:
    found = confirm.judge(frame({"as it was": NOW, STILL.name: BETTER}, NULL), [SATURATED, STILL])
    assert [(one.name, one.confirmed) for one in found.of] == [(STILL.name, True), (SATURATED.name, False)]
    assert math.isnan(found.of[1].gain.value)


def test_a_trial_of_no_run_or_of_a_simulated_one_is_refused(tmp_path: Path) -> None:
    run, trial = campaign()
    directory = tmp_path / trial.trial
    directory.mkdir()
    with pytest.raises(LabError, match="it is not in a run's directory"):
        confirm.measured_run(directory)
    store.write(tmp_path, run)
    assert confirm.measured_run(directory) == run
    simulated = {"origin": "r", "workloads": [], "seeds": 1}
    setup = SETUP.model_validate({**SETUP.model_dump(), "simulated": simulated})
    store.write(tmp_path, run.model_copy(update={"setup": setup}))
    with pytest.raises(LabError, match="it was simulated itself; advice is for measured trials"):
        confirm.measured_run(directory)
