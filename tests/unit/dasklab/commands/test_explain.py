"""`dasklab explain` refuses options that are for one trial where there are more, instead of ignoring them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.comparison.wording import SINGLE

from tests.unit.dasklab.stored_run import TRIAL, previous_run

RECORDS = Path(__file__).parents[3] / "data" / "records"


@pytest.mark.parametrize(
    "words", [("--trace", "t.pftrace"), ("--profile", "p.json"), ("--operation", "1")], ids=lambda w: w[0]
)
def test_option_for_one_trial_is_refused_for_a_run(words: tuple[str, ...], tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["explain", str(previous_run(tmp_path)), *words])
    assert result.exit_code == 2
    assert f"a run of an experiment, and {words[0]} is for one trial; name one alone" in result.output


def test_run_is_compared_with_another_run_only(tmp_path: Path) -> None:
    run = previous_run(tmp_path)
    result = CliRunner().invoke(main, ["explain", str(run), str(run / TRIAL)])
    assert result.exit_code == 2
    assert f"{run / TRIAL}: a trial; compare a run of an experiment with another run" in result.output


def test_two_runs_of_one_trial_each_may_differ_by_chance(tmp_path: Path) -> None:
    runs = [previous_run(tmp_path / name) for name in ("then", "now")]
    result = CliRunner().invoke(main, ["explain", *map(str, runs)])
    assert result.exit_code == 0
    assert "baseline: +0.00" in result.output and SINGLE in result.output.replace("\n", " ")


@pytest.mark.parametrize("option", ["--trace", "--profile"])
def test_option_for_one_trial_is_refused_for_two(option: str, tmp_path: Path) -> None:
    trial, file = previous_run(tmp_path) / TRIAL, tmp_path / "out.pftrace"
    result = CliRunner().invoke(main, ["explain", str(trial), str(trial), option, str(file)])
    assert result.exit_code == 2
    assert f"several trials are compared, and {option} is for one trial" in result.output
    assert not file.exists()


def test_three_records_show_which_causes_vary(tmp_path: Path) -> None:
    copies = [
        str(shutil.copytree(RECORDS / name, tmp_path / name)) for name in ("queue", "retries", "noworkers")
    ]
    shown = CliRunner().invoke(main, ["explain", *copies], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "3 records took" in shown.output
    assert "What varies with the length: waiting for workers" in shown.output
    printed = CliRunner().invoke(main, ["explain", "--json", *copies], catch_exceptions=False).output
    document = json.loads(printed)
    assert document["names"] == copies
    assert sum(cause["part"] for cause in document["causes"]) == pytest.approx(1, abs=0.1)
    refused = CliRunner().invoke(main, ["explain", "--why", *copies])
    assert (refused.exit_code, "--why is for one trial" in refused.output) == (2, True)
