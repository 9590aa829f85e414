"""Results over Dask's versions: what is kept, what is called a regression, and asv's files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.model.experiment import Experiment
from dasklab.results.history import asv, history
from dasklab.running import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json

SLOWER = {"2024.8.0": 4.0, "2025.4.1": 6.0, "2026.8.0": 6.0}


def told(trial: Json, files: Json) -> int:
    """A lab in which the version that is asked for runs."""
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
        "runs": 5,
        "blocks": 3,
    }
    begun = driver.start(
        tmp_path / "results", "versions", Experiment.model_validate(document), SETUP, quick=False
    )
    driver.execute(begun, FakeLab(seconds, told), lambda trial, state: None)
    return begun.directory


@pytest.fixture
def kept(run: Path, tmp_path: Path) -> Path:
    file = tmp_path / "results" / "history.csv"
    history.add(file, run)
    return file


def test_a_run_is_kept_once_with_the_version_of_each_trial(run: Path, kept: Path) -> None:
    frame = history.read(kept)
    assert list(frame) == list(history.COLUMNS)
    assert set(frame.dask) == set(SLOWER)
    assert set(frame.benchmark) == {"versions.compute_s"}  # pings are of hosts, not of a version
    assert set(frame.params) == {'{"delay": 0}', '{"delay": 50}'}  # the version is no parameter
    assert len(frame) == 3 * 5 * (3 * 2 + 1)
    assert frame.null.sum() == 15
    assert history.add(kept, run) == len(frame)
    assert history.read(kept).equals(frame)


def test_a_regression_is_told_from_noise(kept: Path) -> None:
    steps = {(step.old, step.new, step.params["delay"]): step for step in history.steps(history.read(kept))}
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


def test_versions_are_in_the_order_of_their_numbers() -> None:
    rows = [sample(version, 1.0 + i) for version in ("2024.10.0", "2024.9.1", "2024.8.2") for i in (0, 1)]
    found = [(step.old, step.new) for step in history.steps(pd.DataFrame(rows))]
    assert found == [("2024.8.2", "2024.9.1"), ("2024.9.1", "2024.10.0")]


def test_versions_are_compared_within_a_block_where_they_share_one() -> None:
    """The machine of block 2 is twice as slow: pooled, that would hide half a change, or make one."""
    rows = [sample("1.0", v * b, b) for b in (1, 2) for v in (10.0, 10.2, 10.4)]
    rows += [sample("1.1", 1.5 * v * b, b) for b in (1, 2) for v in (10.0, 10.2, 10.4)]
    (step,) = history.steps(pd.DataFrame(rows))
    assert step.change.value == pytest.approx(1.5)
    assert step.change.low > 1.4


def test_what_the_null_trial_differs_by_is_not_shown() -> None:
    rows = [sample("1.0", v, b) for b in (1, 2, 3) for v in (10.0, 10.1, 10.2)]
    rows += [sample("1.1", v + b / 50, b) for b in (1, 2, 3) for v in (12.0, 12.1, 12.2)]
    (alone,) = history.steps(pd.DataFrame(rows))
    assert alone.verdict == "regression"
    null = [sample("1.0", v, b, null=True) for b in (1, 2, 3) for v in (13.0, 13.1, 13.2)]
    (noisy,) = history.steps(pd.DataFrame(rows + null))
    assert noisy.verdict == "not shown"


def test_what_one_block_says_and_another_does_not_is_not_shown() -> None:
    """Three samples of one trial agree on whatever else the machine did meanwhile."""
    values = (10.0, 10.1, 10.2)
    once = [sample("1.0", v) for v in values] + [sample("1.1", 2 * v) for v in values]
    (step,) = history.steps(pd.DataFrame(once))
    assert step.change.value == pytest.approx(2.0) and pd.isna(step.change.low)
    assert step.verdict == "not shown"
    back = [sample("1.0", v, 2) for v in values] + [sample("1.1", 0.99 * v, 2) for v in values]
    (step,) = history.steps(pd.DataFrame(once + back))
    assert step.verdict == "not shown"
    again = [sample("1.0", v, 2) for v in values] + [sample("1.1", 2 * v, 2) for v in values]
    (step,) = history.steps(pd.DataFrame(once + again))
    assert step.verdict == "regression"


def test_machines_are_never_compared() -> None:
    rows = [sample("1.0", 1.0), sample("1.1", 9.0) | {"machine": "tcg"}]
    assert list(history.steps(pd.DataFrame(rows))) == []


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    with pytest.raises(LabError, match="the history is empty"):
        history.need(file)
    file.write_text("a,b\n1,2\n")
    with pytest.raises(LabError, match="this is not a history, its columns are a, b"):
        history.read(file)


def test_the_command_keeps_tells_and_publishes(run: Path, tmp_path: Path) -> None:
    def said(*words: str) -> str:
        done = CliRunner().invoke(main, ["history", "--results", str(tmp_path / "results"), *words])
        assert done.exit_code == 0, done.output
        return done.output

    assert f"{run}: 105 samples added to " in said("add", str(run))
    lines = said().splitlines()
    assert "regression" in lines[1] and "2024.8.0" in lines[1]
    assert lines[-1].startswith("2 regressions in 4 steps")
    assert "asv publish" in said("publish", str(tmp_path / "asv"))
    assert (tmp_path / "asv" / "asv.conf.json").exists()


def test_asv_s_files_hold_every_version_and_parameter(kept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "asv"
    asv.write(history.read(kept), folder)
    before = {path: path.read_text() for path in folder.rglob("*.json")}
    asv.write(history.read(kept), folder)
    assert {path: path.read_text() for path in folder.rglob("*.json")} == before  # the same again
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
    for each in results:
        version = subprocess.run(
            ["git", "-C", str(folder / "dask"), "tag", "--points-at", each["commit_hash"]],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        row = dict(zip(each["result_columns"], each["results"]["versions.compute_s"], strict=False))
        assert row["params"] == [["0", "50"]]
        assert row["result"] == pytest.approx([SLOWER[version], 2 * SLOWER[version]], rel=0.03)
        assert row["stats_ci_99_a"][0] <= row["result"][0] <= row["stats_ci_99_b"][0]


def test_what_a_version_lacks_is_empty(tmp_path: Path) -> None:
    rows = [sample("1.0", 1.0) | {"params": json.dumps({"a": 1, "b": b})} for b in ("x", "y")]
    rows.append(sample("1.1", 3.0) | {"params": json.dumps({"a": 2, "b": "y"})})
    asv.write(pd.DataFrame(rows), tmp_path)
    found = [json.loads(path.read_text()) for path in (tmp_path / "results" / "kvm").glob("*-*.json")]
    values = sorted((each["results"]["x.compute_s"][0] for each in found), key=str)
    rounded = [[value and round(value, 9) for value in row] for row in values]
    assert rounded == [[1.0, 1.0, None, None], [None, None, None, 3.0]]
