"""Results over Dask's versions: the history, regressions, and asv's files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.model.experiments.experiment import Experiment
from dasklab.results.history import asv, history
from dasklab.results.run import Run
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json

SLOWER = {"2024.8.0": 4.0, "2025.4.1": 6.0, "2026.8.0": 6.0}


def run_requested_version(trial: Json, files: Json) -> int:
    """Report that the requested version ran."""
    files["timings.json"]["versions"]["dask"] = trial["packages"]["dask"]
    files["timings.json"]["packages"] = {"client": trial["environment"] | trial["packages"]}
    return 0


def seconds(trial: Json) -> float:
    return SLOWER[trial["packages"]["dask"]] * (2 if trial["factors"]["delay"] else 1)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    document = {
        "title": "T",
        "question": "Q?",
        "metrics": {"compute_s": None, "rtt_ms": None},
        "factors": {
            "dask": {"sets": "packages.dask", "levels": ["2026.8.0", "2024.8.0", "2025.4.1"]},
            "delay": {"sets": "links.scheduler.delay_ms", "levels": [0, 50]},
        },
        "repeats": 5,
        "blocks": 3,
    }
    run = driver.start(
        tmp_path / "results", "versions", Experiment.model_validate(document), SETUP, quick=False
    )
    driver.execute(run, FakeLab(seconds, run_requested_version), lambda trial, state: None)
    return run.stored.folder


@pytest.fixture
def stored(run: Path, tmp_path: Path) -> Path:
    """The history with this run."""
    file = tmp_path / "results" / "history.csv"
    history.add(file, Run(run))
    return file


def test_run_is_stored_once_with_the_version_of_each_trial(run: Path, stored: Path) -> None:
    frame = history.read(stored)
    assert list(frame) == list(history.COLUMNS)
    assert set(frame.dask) == set(SLOWER)
    assert set(frame.benchmark) == {"versions.compute_s"}  # pings do not depend on a version of Dask
    assert set(frame.params) == {'{"delay": 0}', '{"delay": 50}'}  # the version is not a parameter
    assert len(frame) == 3 * 5 * (3 * 2 + 1)
    assert frame.null.sum() == 15
    assert history.add(stored, Run(run)) == len(frame)
    assert history.read(stored).equals(frame)


def test_regression_is_distinguished_from_noise(stored: Path) -> None:
    steps = {(step.old, step.new, step.params["delay"]): step for step in history.steps(history.read(stored))}
    assert set(steps) == {
        (old, new, delay)
        for old, new in (("2024.8.0", "2025.4.1"), ("2025.4.1", "2026.8.0"))
        for delay in (0, 50)
    }
    for delay in (0, 50):
        slower, same = steps["2024.8.0", "2025.4.1", delay], steps["2025.4.1", "2026.8.0", delay]
        assert slower.verdict == "regression"
        assert slower.change.value == pytest.approx(1.5, abs=0.05)
        assert 1.4 < slower.change.low < slower.change.high < 1.6
        assert slower.before.value == pytest.approx(4 * (2 if delay else 1), rel=0.03)
        assert same.verdict == "not shown"
        assert same.change.value == pytest.approx(1, abs=0.03)


def sample(dask: str, value: float, block: int = 1, null: bool = False, run: str = "a/1") -> Json:
    place = {"machine": "kvm", "benchmark": "x.compute_s", "params": "{}", "dask": dask, "run": run}
    return place | {"block": block, "null": null, "value": value}


def test_versions_are_ordered_by_number() -> None:
    rows = [sample(version, 1.0 + i) for version in ("2024.10.0", "2024.9.1", "2024.8.2") for i in (0, 1)]
    steps = [(step.old, step.new) for step in history.steps(pd.DataFrame(rows))]
    assert steps == [("2024.8.2", "2024.9.1"), ("2024.9.1", "2024.10.0")]


def test_versions_are_compared_within_the_blocks_that_they_share() -> None:
    """In block 2 the machine is slower by x 2; without blocks that would hide a change or make one."""
    rows = [sample("1.0", v * b, b) for b in (1, 2) for v in (10.0, 10.2, 10.4)]
    rows += [sample("1.1", 1.5 * v * b, b) for b in (1, 2) for v in (10.0, 10.2, 10.4)]
    (step,) = history.steps(pd.DataFrame(rows))
    assert step.change.value == pytest.approx(1.5)
    assert step.change.low > 1.4


def test_change_no_larger_than_the_null_trial_s_is_not_shown() -> None:
    rows = [sample("1.0", v, b) for b in (1, 2, 3) for v in (10.0, 10.1, 10.2)]
    rows += [sample("1.1", v + b / 50, b) for b in (1, 2, 3) for v in (12.0, 12.1, 12.2)]
    (alone,) = history.steps(pd.DataFrame(rows))
    assert alone.verdict == "regression"
    null = [sample("1.0", v, b, null=True) for b in (1, 2, 3) for v in (13.0, 13.1, 13.2)]
    (noisy,) = history.steps(pd.DataFrame(rows + null))
    assert noisy.verdict == "not shown"


def test_change_of_one_block_only_is_not_shown() -> None:
    """The three samples of one trial share whatever else the machine did."""
    values = (10.0, 10.1, 10.2)
    once = [sample("1.0", v) for v in values] + [sample("1.1", 2 * v) for v in values]
    (step,) = history.steps(pd.DataFrame(once))
    assert step.change.value == pytest.approx(2.0) and pd.isna(step.change.low)
    assert step.verdict == "not shown"
    back = [sample("1.0", v, 2) for v in values] + [sample("1.1", 0.99 * v, 2) for v in values]
    (step,) = history.steps(pd.DataFrame(once + back))
    assert step.verdict == "not shown"
    same = [sample("1.0", v, 2) for v in values] + [sample("1.1", 2 * v, 2) for v in values]
    (step,) = history.steps(pd.DataFrame(once + same))
    assert step.verdict == "regression"


def test_machines_are_never_compared() -> None:
    rows = [sample("1.0", 1.0), sample("1.1", 9.0) | {"machine": "tcg"}]
    assert list(history.steps(pd.DataFrame(rows))) == []


def test_less_is_worse_for_a_throughput() -> None:
    rows = [
        sample(version, value, block) | {"benchmark": "x.throughput_mbit"}
        for block in (1, 2, 3)
        for version, values in (("1.0", (10.0, 10.1)), ("1.1", (5.0, 5.1)))
        for value in values
    ]
    (step,) = history.steps(pd.DataFrame(rows))
    assert step.change.value < 1 and step.verdict == "regression"


def test_file_that_is_not_a_history_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    with pytest.raises(LabError, match="the history is empty"):
        history.require(file)
    file.write_text("a,b\n1,2\n")
    with pytest.raises(LabError, match="this is not a history, its columns are a, b"):
        history.read(file)


def test_command_adds_prints_and_publishes(run: Path, tmp_path: Path) -> None:
    def output(*words: str) -> str:
        result = CliRunner().invoke(main, ["history", "--results", str(tmp_path / "results"), *words])
        assert result.exit_code == 0, result.output
        return result.output

    assert f"{run}: 105 samples added to " in output("add", str(run))
    lines = output().splitlines()
    assert "regression" in lines[1] and "2024.8.0" in lines[1]
    assert lines[-1].startswith("2 regressions in 4 steps")
    assert "asv publish" in output("publish", str(tmp_path / "asv"))
    assert (tmp_path / "asv" / "asv.conf.json").exists()


def test_files_of_asv_hold_every_version_and_parameter(stored: Path, tmp_path: Path) -> None:
    folder = tmp_path / "asv"
    asv.write(history.read(stored), folder)
    before = {path: path.read_text() for path in folder.rglob("*.json")}
    asv.write(history.read(stored), folder)
    assert {
        path: path.read_text() for path in folder.rglob("*.json")
    } == before  # writing again changes nothing
    tags = subprocess.run(
        ["git", "-C", str(folder / "dask"), "tag", "--sort=creatordate"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert tags.stdout.split() == list(SLOWER)
    (machine,) = (path for path in (folder / "results").iterdir() if path.is_dir())
    results = [json.loads(path.read_text()) for path in machine.glob("*-dasklab.json")]
    assert len(results) == 3
    for result in results:
        version = subprocess.run(
            ["git", "-C", str(folder / "dask"), "tag", "--points-at", result["commit_hash"]],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        row = dict(zip(result["result_columns"], result["results"]["versions.compute_s"], strict=False))
        assert row["params"] == [["0", "50"]]
        assert row["result"] == pytest.approx([SLOWER[version], 2 * SLOWER[version]], rel=0.03)
        assert row["stats_ci_99_a"][0] <= row["result"][0] <= row["stats_ci_99_b"][0]


def test_parameters_that_a_version_lacks_are_empty(tmp_path: Path) -> None:
    rows = [sample("1.0", 1.0) | {"params": json.dumps({"a": 1, "b": b})} for b in ("x", "y")]
    rows.append(sample("1.1", 3.0) | {"params": json.dumps({"a": 2, "b": "y"})})
    asv.write(pd.DataFrame(rows), tmp_path)
    results = [json.loads(path.read_text()) for path in (tmp_path / "results" / "kvm").glob("*-*.json")]
    values = sorted((result["results"]["x.compute_s"][0] for result in results), key=str)
    rounded = [[value and round(value, 9) for value in row] for row in values]
    assert rounded == [[1.0, 1.0, None, None], [None, None, None, 3.0]]
