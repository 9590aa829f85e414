"""Runs of earlier formats are read: listed, judged, explained and reported like runs of today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import (
    Attempt,
    Campaign,
    Configured,
    Measured,
    Records,
    Result,
    Timings,
)
from dasklab.model.forms.earlier_formats import translate
from dasklab.results import load
from dasklab.results.run import Run
from dasklab.results.storage import documents
from dasklab.results.table import read_table
from dasklab.results.validity import verdict

from tests.unit.dasklab.stored_run import previous_run

TRIAL = "1-01-baseline"


@pytest.fixture
def run(tmp_path: Path, undrawn: None) -> Path:
    """The run of commit da62e21 that is stored in tests/data/run, with a capture of the same format."""
    return previous_run(tmp_path / "results")


def dasklab(*words: str | Path) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_stored_run_is_of_an_earlier_format(run: Path) -> None:
    formats = {json.loads(file.read_text())["schema"] for file in run.glob("**/*.json")}
    assert formats == {2}
    assert (run / TRIAL / Measured.PREVIOUS_FILE).exists() and (run / TRIAL / Records.PREVIOUS_FILE).exists()


def test_stored_run_is_judged_again_with_the_same_verdict(run: Path) -> None:
    before = documents.require(Result, run / TRIAL)
    [after] = verdict.assess(Run(run)).values()
    assert after == before and after.status == "ok"


def test_stored_run_is_listed_shown_explained_and_reported(run: Path, tmp_path: Path) -> None:
    assert "1/1" in dasklab("results", "--results", tmp_path / "results")
    assert "compute_s" in dasklab("results", "show", run)
    assert "It took" in dasklab("explain", run)
    dasklab("report", run, "-o", tmp_path / "report")
    page = (tmp_path / "report" / "report.md").read_text()
    assert "Time to compute" in page and "Trials that left" not in page


def test_stored_samples_have_the_metrics_of_today(run: Path) -> None:
    timings, measured = documents.require(Timings, run / TRIAL), documents.require(Measured, run / TRIAL)
    frame = load(run)
    computed = frame[frame.metric.eq("compute_s")].value
    assert sorted(computed) == sorted(sample.duration_s for sample in timings.samples)
    assert frame.metric.eq("rtt_ms").sum() == sum(len(probe.samples_ms) for probe in measured.rtt)
    assert set(frame.prediction_error) == {0.0}


def test_impairment_that_a_stored_file_does_not_name_is_zero(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was written before the registry had a row must still be read."""
    from dasklab.model.files import configured as module

    monkeypatch.setattr(module, "AMOUNTS", (*module.AMOUNTS, "corrupt_pct"))
    file = run / TRIAL / Configured.FILE
    document = json.loads(file.read_text())
    link = {"direction": "egress", "peer": None, "policer": False, "delay_ms": 5.0}
    document["hosts"]["client"]["link"] = [link]
    file.write_text(json.dumps(document))
    [impairment] = documents.require(Configured, run / TRIAL).hosts["client"].link
    assert impairment.amounts["delay_ms"] == 5.0 and impairment.amounts["corrupt_pct"] == 0


def test_names_of_an_experiment_are_translated_wherever_they_are(run: Path) -> None:
    experiment: dict[str, Any] = {
        "metrics": {"node_stolen_pct": None},
        "tolerances": {"stolen_pct": 5, "waited_pct": 20},
        "factors": {
            "seat": {"sets": "scheduler.occupant", "levels": ["dask", "random"]},
            "work": {"levels": {"zero": {"worker": {"occupant": "zero"}}}},
        },
        "quick": {"metrics": {"resent_pct": None}},
    }
    document = json.loads((run / Campaign.FILE).read_text()) | {"experiment": experiment}
    (run / Campaign.FILE).write_text(json.dumps(document))
    assert Run(run).document.experiment == {
        "metrics": {"node_steal_pct": None},
        "tolerances": {"steal_pct": 5, "pressure_pct": 20},
        "factors": {
            "seat": {"sets": "scheduler.variant", "levels": ["dask", "random"]},
            "work": {"levels": {"zero": {"worker": {"variant": "zero"}}}},
        },
        "quick": {"metrics": {"retransmitted_pct": None}},
    }


def test_names_of_a_trial_are_translated(run: Path) -> None:
    document = json.loads((run / TRIAL / RequestedTrial.FILE).read_text())
    document["scheduler"]["occupant"] = document["seat"]["occupant"] = "random"
    (run / TRIAL / RequestedTrial.FILE).write_text(json.dumps(document))
    trial = documents.require(RequestedTrial, run / TRIAL)
    assert trial.scheduler.variant == trial.resolved_scheduler.variant == "random"


def test_documents_that_a_trial_left_have_their_names_of_today(run: Path) -> None:
    file = run / TRIAL / Attempt.FILE
    stored = json.loads(file.read_text()) | {"files": ["trial.json", "delivered.json", "inside.json"]}
    file.write_text(json.dumps(stored))
    assert documents.require(Attempt, run / TRIAL).files == ("trial.json", "measured.json", "records.json")
    assert [trial.folder for trial in Run(run).trials] == [run / TRIAL]


def test_faults_of_a_simulation_are_translated() -> None:
    outcome = {"seed": 1, "seen": {"worker-1": {"at_s": 1.0, "lasted_s": None, "found": "down"}}}
    translated = translate("simulation.json", {"schema": 2, "outcomes": [outcome]})
    [after] = translated["outcomes"]
    assert after == {"seed": 1, "faults": {"worker-1": {"at_s": 1.0, "lasted_s": None, "state": "down"}}}
    assert "seen" in outcome  # the argument is not changed


def test_table_file_of_an_earlier_format_is_translated(run: Path, tmp_path: Path) -> None:
    frame = load(run)
    old = frame.rename(columns={"prediction_error": "missed"})
    old = old.assign(metric=old.metric.replace({"node_steal_pct": "node_stolen_pct"}))
    old.to_csv(tmp_path / "old.csv", index=False)
    pd.testing.assert_series_equal(read_table(tmp_path / "old.csv").metric, frame.metric)


def test_format_3_called_a_repeat_a_run() -> None:
    sample = {"run": 1, "warmup": False}
    assert translate("timings.json", {"schema": 3, "samples": [sample]}) == {
        "schema": 4,
        "samples": [{"repeat": 1, "warmup": False}],
    }
    capture = {"schema": 3, "timings": {"schema": 3, "samples": [sample]}}
    assert translate("capture.json", capture)["timings"] == {
        "schema": 4,
        "samples": [{"warmup": False, "repeat": 1}],
    }
    trial = translate("trial.json", {"schema": 3, "runs": 3, "captured_runs": 2})
    assert trial == {"schema": 4, "repeats": 3, "captured_repeats": 2}
    simulation = translate("simulation.json", {"schema": 3, "outcomes": [{"runs": []}]})
    assert simulation["outcomes"] == [{"repeats": []}]


def test_experiment_of_format_3_is_renamed_wherever_it_has_settings() -> None:
    experiment = {
        "runs": 3,
        "run_s": 2,
        "workload": {"params": {"runs": 9}},
        "factors": {
            "much": {"sets": "runs", "levels": [1, 2]},
            "more": {"levels": {"x": {"captured_runs": 1}}},
        },
        "quick": {"runs": 2},
    }
    assert translate("experiment.json", {"schema": 3, "experiment": experiment})["experiment"] == {
        "repeats": 3,
        "repeat_s": 2,
        "workload": {"params": {"runs": 9}},
        "factors": {
            "much": {"sets": "repeats", "levels": [1, 2]},
            "more": {"levels": {"x": {"captured_repeats": 1}}},
        },
        "quick": {"repeats": 2},
    }
