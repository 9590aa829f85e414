"""Which experiment compares candidates in the lab, and its verdict on samples whose answer is known."""

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

SATURATION = Candidate((("distributed.scheduler.worker-saturation", 1.0),))
NO_STEALING = Candidate((("distributed.scheduler.work-stealing", False),))
ORIGIN = {
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


def origin() -> tuple[Campaign, Trial]:
    """Return a run, and its trial with 300 Mbit/s."""
    content = experiments.check(ORIGIN, "caps.yml")
    trials = plan("caps", content, SETUP)
    run = Campaign(
        name="caps",
        quick=False,
        seed=1,
        only=None,
        order=tuple(trial.trial for trial in trials),
        git_revision=None,
        setup=SETUP,
        experiment=content.model_dump(mode="json", exclude_unset=True),
    )
    return run, next(trial for trial in trials if trial.factors == {"rate_mbit": 300})


def confirming(**options: int | None) -> Experiment:
    run, trial = origin()
    candidates = [SATURATION, NO_STEALING]
    return confirm.experiment(run, trial, candidates, **{"runs": None, "blocks": None} | options)


# --- the experiment ----------------------------------------------------------------------------------------


def test_cells_are_the_unchanged_trial_and_the_candidates_with_a_null_trial() -> None:
    trials = [trial for trial in plan("advice", confirming(), SETUP) if trial.block == 1]
    assert {trial.cell for trial in trials} == {
        "change=unchanged",
        "change=worker-saturation=1.0",
        "change=work-stealing=false",
    }
    assert sum(trial.null for trial in trials) == 1
    by_cell = {trial.cell: trial for trial in trials if not trial.null}
    base, original = by_cell["change=unchanged"], origin()[1]
    assert base.baseline
    equal = {"workload", "nics", "links", "bridge", "workers", "runs", "warmups", "dask", "probes", "layout"}
    assert base.model_dump(include=equal) == original.model_dump(include=equal)
    scheduler = by_cell["change=worker-saturation=1.0"].dask["distributed"]["scheduler"]
    assert scheduler == {"work-stealing-interval": "2s", "worker-saturation": 1.0}
    assert not any(trial.captured_runs for trial in trials)


def test_runs_and_blocks_are_those_of_the_trial_unless_requested_otherwise() -> None:
    assert (confirming().runs, confirming().blocks) == (5, 3)
    assert (confirming(runs=8, blocks=1).runs, confirming(runs=8, blocks=1).blocks) == (8, 1)


def test_written_file_is_the_same_experiment(tmp_path: Path) -> None:
    path = confirm.write(tmp_path, confirming())
    assert experiments.load(str(path)) == ("advice", confirming())
    assert yaml.safe_load(path.read_text())["factors"]["change"]["levels"]["unchanged"] == {}


def test_run_is_found_by_its_whole_experiment(tmp_path: Path) -> None:
    assert confirm.find_run(tmp_path, confirming()) is None
    run = driver.start(tmp_path, confirm.NAME, confirming(), SETUP, quick=False).directory
    assert confirm.find_run(tmp_path, confirming()) == run
    assert confirm.find_run(tmp_path, confirming(runs=7)) is None


def test_trial_outside_a_run_or_in_a_simulated_run_is_refused(tmp_path: Path) -> None:
    run, trial = origin()
    directory = tmp_path / trial.trial
    directory.mkdir()
    with pytest.raises(LabError, match="the trial is not in the directory of a run"):
        confirm.measured_run(directory)
    store.write(tmp_path, run)
    assert confirm.measured_run(directory) == run
    simulated = {"origin": "r", "workloads": [], "seeds": 1}
    setup = SETUP.model_validate({**SETUP.model_dump(), "simulated": simulated})
    store.write(tmp_path, run.model_copy(update={"setup": setup}))
    with pytest.raises(LabError, match="this trial was simulated; advice needs a measured trial"):
        confirm.measured_run(directory)


# --- the verdict -------------------------------------------------------------------------------------------


def frame(cells: dict[str, list[float]], null: list[float] | None, status: str = "ok") -> pd.DataFrame:
    """A table with one sample of each cell in each block. The first cell is the baseline."""
    rows = []
    for place, (level, samples) in enumerate(cells.items()):
        rows += [(level, place == 0, False, *sample) for sample in enumerate(samples)]
    rows += [(next(iter(cells)), False, True, *sample) for sample in enumerate(null or [])]
    table = pd.DataFrame(rows, columns=["change", "baseline", "null", "block", "value"])
    constants: dict[str, Any] = {
        "metric": "compute_s",
        "warmup": False,
        "status": status,
        "tested": True,
        "src": "",
        "dst": "",
        "prediction_error": 0.0,
        "workload": "merge",
    }
    return table.assign(cell="change=" + table.change, **constants)


BASELINE = [10.0, 10.1, 9.9, 10.0, 10.05, 9.95]
NULL = [10.2, 10.3, 10.1, 10.2, 10.25, 10.15]  # 2 % more than the baseline
BETTER = [8.0, 8.1, 7.9, 8.0, 8.05, 7.95]


def judged(other: list[float], null: list[float] | None = NULL) -> confirm.Confirmations:
    cells = {"unchanged": BASELINE, SATURATION.name: BETTER, NO_STEALING.name: other}
    return confirm.judge(frame(cells, null), [NO_STEALING, SATURATION])


def test_gain_above_the_noise_is_confirmed() -> None:
    better, other = judged([10.0, 10.1, 9.9, 10.02, 9.98, 10.0]).candidates
    assert (better.name, better.confirmed) == (SATURATION.name, True)
    base_s = math.sqrt(10.0 * 10.2)  # the null trial is a baseline, too
    assert better.gain.value == pytest.approx(1 - 8.0 / base_s, abs=0.002)
    assert 0.18 < better.gain.low < better.gain.value < better.gain.high < 0.24
    assert dict(better.settings) == {"distributed.scheduler.worker-saturation": 1.0}
    assert (other.name, other.confirmed) == (NO_STEALING.name, False)


def test_gain_below_the_noise_floor_is_not_confirmed() -> None:
    little = [10.05, 9.8, 10.2, 9.9, 10.1, 9.85]  # 1 %, where equal trials differ by 2 %
    assert [candidate.confirmed for candidate in judged(little).candidates] == [True, False]
    calm = frame({"unchanged": [10.0, 10.1], NO_STEALING.name: [9.8, 9.9]}, [10.0, 10.1])
    confirmations = confirm.judge(calm, [NO_STEALING])
    assert [candidate.confirmed for candidate in confirmations.candidates] == [True]


def test_longer_run_time_is_never_confirmed() -> None:
    worse = judged([13.0, 13.1, 12.9, 13.0, 13.05, 12.95]).candidates[1]
    assert worse.gain.value == pytest.approx(-0.287, abs=0.001)
    assert not worse.confirmed


def test_noise_floor_is_the_smallest_share_that_would_be_shown() -> None:
    assert 0.01 <= judged(BASELINE).noise_floor < 0.03


def test_without_a_valid_null_trial_or_baseline_nothing_is_confirmed() -> None:
    with pytest.raises(LabError, match="no valid null trial: nothing is confirmed"):
        judged(BASELINE, null=None)
    invalid = frame({"unchanged": BASELINE, NO_STEALING.name: BASELINE}, NULL, "invalid")
    with pytest.raises(LabError, match="no valid baseline: nothing is confirmed"):
        confirm.judge(invalid, [NO_STEALING])


def test_candidate_without_a_valid_trial_is_last_and_not_confirmed() -> None:
    table = frame({"unchanged": BASELINE, NO_STEALING.name: BETTER}, NULL)
    candidates = confirm.judge(table, [SATURATION, NO_STEALING]).candidates
    verdicts = [(candidate.name, candidate.confirmed) for candidate in candidates]
    assert verdicts == [(NO_STEALING.name, True), (SATURATION.name, False)]
    assert math.isnan(candidates[1].gain.value)
