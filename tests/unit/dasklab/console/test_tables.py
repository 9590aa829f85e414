"""The tables of `dasklab results` and `dasklab run`: rows differ, and nothing is cut."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.console.trials.progress import execute
from dasklab.model.experiments import experiment
from dasklab.model.experiments.cells import cell_names
from dasklab.results import load
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json
from tests.unit.dasklab.console.terminals import on_terminals


def dasklab(*argv: object) -> str:
    result = CliRunner().invoke(main, [str(word) for word in argv], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def two_factors(tmp_path_factory: pytest.TempPathFactory) -> driver.ActiveRun:
    """A run whose cells differ in two factors."""
    name, content = experiment.load("bridge_rate", quick=True)
    run = driver.start(tmp_path_factory.mktemp("results"), name, content, SETUP, quick=True)
    driver.execute(run, FakeLab(), lambda trial, state: None)
    return run


def test_cells_are_distinct_on_a_narrow_terminal(two_factors: driver.ActiveRun) -> None:
    outputs = on_terminals(80, 44, argv=["results", "show", str(two_factors.stored)])
    for columns, printed in zip((80, 44), outputs, strict=True):
        assert "…" not in printed
        assert max(map(len, printed.splitlines())) <= columns
        table = printed.partition("Not shown")[0]
        for level in ("learning", "flooding") if columns == 80 else ("lear", "floo"):
            assert table.count(level) == len(cell_names(two_factors.experiment)) / 2


def test_rows_are_complete_without_a_terminal(two_factors: driver.ActiveRun, tmp_path: Path) -> None:
    names = cell_names(two_factors.experiment)
    lines = dasklab("results", "show", two_factors.stored.folder).splitlines()
    rows = [line.split()[:2] for line in lines[2 : 2 + len(names)]]
    assert [f"rate_mbit={rate},bridge={bridge}" for rate, bridge in rows] == names
    results = two_factors.stored.folder.parent.parent
    deep = tmp_path / ("long" * 30)
    results.rename(deep)
    try:
        assert str(deep / "bridge_rate") in dasklab("results", "--results", deep)
    finally:
        deep.rename(results)


def test_run_lists_every_experiment_with_its_question() -> None:
    lines = dasklab("run")
    assert all(experiment.load(name)[1].question in lines for name in experiment.names())


def test_runs_are_listed_compared_and_exported(
    measured: Callable[..., driver.ActiveRun], tmp_path: Path
) -> None:
    old, new = measured(FakeLab(), "first"), measured(FakeLab(), "second")
    listed = dasklab("results", "--results", tmp_path / "results").splitlines()
    assert listed[1].split() == [str(old.stored), "full", "8/8", "8", "tcg"]
    table = dasklab("results", "show", old.stored.folder).splitlines()
    assert table[0].strip() == "Time to compute, s (compute_s)"
    assert table[1].split()[:4] == ["delay_ms", "n", "median", "x"]
    assert [row.split()[0] for row in table[2:5]] == ["0", "50", "200"]
    compared = dasklab("results", "compare", old.stored.folder, new.stored.folder)
    _, _, of_time = compared.partition("Time to compute, s")
    heads, *cells = [line.split() for line in of_time.splitlines()[1:5]]
    assert heads[:3] == ["cell", "old", "new"] and [cell[0] for cell in cells][-1] == "delay_ms=50"
    assert not re.search(r"\((?:-|0\.00 )", compared)  # no ratio may be below zero
    twice = CliRunner().invoke(main, ["results", "compare", *[str(old.stored.folder)] * 2])
    assert twice.exit_code == 2 and "named twice; name two" in " ".join(twice.output.split())
    dasklab("results", "export", old.stored.folder, tmp_path / "a.csv")
    assert len(pd.read_csv(tmp_path / "a.csv")) == len(load(old.stored.folder))


def test_dry_run_prints_the_trials_and_their_duration() -> None:
    planned = dasklab("run", "delay_worker", "--quick", "--dry-run").splitlines()
    assert planned[-1].startswith("15 trials, about ")
    assert sum("null trial" in line for line in planned) == 3


def test_reason_that_trials_share_is_printed_once(
    sweep: experiment.Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "client: Look before the repeats: ssh: connect to host 10.77.0.11 port 22: No route to host"

    def refuse(trial: Json, files: Json) -> int:
        files.clear()
        files["failed.json"] = {
            "schema": 4,
            "host": "client",
            "task": "Look",
            "status": "failed",
            "reasons": [reason],
        }
        return 2

    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    execute(run, FakeLab(spoil=refuse))
    printed = capsys.readouterr().err
    assert (printed.count("failed  "), printed.count(reason), printed.count("as above")) == (8, 1, 7)


def test_valid_trials_share_no_reason(
    sweep: experiment.Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(driver.start(tmp_path, "x", sweep, SETUP, quick=False), FakeLab())
    printed = capsys.readouterr().err
    assert (printed.count("ok  "), printed.count("as above")) == (8, 0)
    assert len(re.findall(r"  time to compute [\d.]+ s$", printed, re.M)) == 8


def test_records_are_listed_beside_runs(two_factors: driver.ActiveRun, tmp_path: Path) -> None:
    """Those of a trial are none: they belong to the run. A damaged one is reported and left out."""
    records, run = Path(__file__).parents[3] / "data" / "records", two_factors.stored.folder
    shutil.copytree(run, tmp_path / "bridge_rate" / run.name)
    [*_, trial] = (tmp_path / "bridge_rate" / run.name).glob("*/trial.json")
    shutil.copytree(records / "queue", trial.parent / "record")
    shutil.copytree(records / "queue", tmp_path / "mine")
    shutil.copytree(records / "queue", tmp_path / "damaged")
    (tmp_path / "damaged" / "record.json").write_text("{}")
    printed = CliRunner().invoke(main, ["results", "--results", str(tmp_path)], catch_exceptions=False)
    assert printed.exit_code == 0
    rows = [line.split()[0] for line in printed.stdout.splitlines() if line.strip()]
    assert rows == ["run", str(tmp_path / "bridge_rate" / run.name), "record", str(tmp_path / "mine")]
    assert "the record is left out" in printed.stderr
    listed = json.loads(dasklab("results", "--json", "--results", tmp_path / "mine"))
    assert [(row["record"], round(row["duration_s"])) for row in listed] == [(str(tmp_path / "mine"), 3)]
