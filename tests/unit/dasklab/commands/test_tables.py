"""What the commands of an experiment print: rows differ, nothing is cut, one cause is told once."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.commands.progress import execute
from dasklab.model import experiment
from dasklab.model.cells import cell_names
from dasklab.results import load
from dasklab.running import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json


def ask(*argv: object) -> str:
    result = CliRunner().invoke(main, [str(word) for word in argv], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> driver.ActiveRun:
    """A run of two factors, each cell told from the others only by both."""
    name, content = experiment.load("bridge_rate", quick=True)
    begun = driver.start(tmp_path_factory.mktemp("results"), name, content, SETUP, quick=True)
    driver.execute(begun, FakeLab(), lambda trial, state: None)
    return begun


SHOWN = """
import fcntl, struct, sys, termios
import dasklab.cli
for columns in {columns}:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    dasklab.cli.main({argv}, standalone_mode=False)
    print("@@")
"""


def on_terminals(*columns: int, argv: list[str]) -> list[str]:
    """What a command prints on terminals of so many columns, all in one process."""
    master, slave = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    command = [sys.executable, "-c", SHOWN.format(columns=columns, argv=argv)]
    with subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave, env=environment) as child:
        os.close(slave)
        printed = b""
        try:
            while part := os.read(master, 65536):
                printed += part
        except OSError:  # how a terminal ends
            pass
        os.close(master)
    assert child.returncode == 0, printed.decode()
    return re.sub(r"\x1b\[[\d;]*m", "", printed.decode()).replace("\r\n", "\n").split("@@\n")[:-1]


def test_cells_are_told_apart_on_a_narrow_terminal(crossed: driver.ActiveRun) -> None:
    shown = on_terminals(80, 44, argv=["results", "show", str(crossed.directory)])
    for columns, printed in zip((80, 44), shown, strict=True):
        assert "…" not in printed
        assert max(map(len, printed.splitlines())) <= columns
        table = printed.partition("Not shown")[0]
        for level in ("learning", "flooding") if columns == 80 else ("lear", "floo"):
            assert table.count(level) == len(cell_names(crossed.experiment)) / 2


def test_what_is_no_terminal_gets_whole_rows(crossed: driver.ActiveRun, tmp_path: Path) -> None:
    lines = ask("results", "show", crossed.directory).splitlines()
    rows = [line.split()[:2] for line in lines[2 : 2 + len(cell_names(crossed.experiment))]]
    assert [f"rate_mbit={rate},bridge={bridge}" for rate, bridge in rows] == cell_names(crossed.experiment)
    deep = tmp_path / ("long" * 30)
    crossed.directory.parent.parent.rename(deep)
    try:
        assert str(deep / "bridge_rate") in ask("results", "--results", deep)
    finally:
        deep.rename(crossed.directory.parent.parent)
    listed = ask("run")
    assert all(experiment.load(name)[1].question in listed for name in experiment.names())


def test_runs_are_listed_compared_and_exported(
    measured: Callable[..., driver.ActiveRun], tmp_path: Path
) -> None:
    old, new = measured(FakeLab(), "first"), measured(FakeLab(), "second")
    listed = ask("results", "--results", tmp_path / "results").splitlines()
    assert listed[1].split() == [str(old.directory), "full", "8/8", "8", "tcg"]
    shown = ask("results", "show", old.directory).splitlines()
    assert shown[1].split()[:4] == ["delay_ms", "n", "median", "x"]
    assert [row.split()[0] for row in shown[2:5]] == ["0", "50", "200"]
    changes = ask("results", "compare", old.directory, new.directory)
    assert changes.count("compute_s") == 3
    ask("results", "export", old.directory, tmp_path / "a.csv")
    assert len(pd.read_csv(tmp_path / "a.csv")) == len(load(old.directory))


def test_a_dry_run_says_what_and_how_long() -> None:
    planned = ask("run", "delay_worker", "--quick", "--dry-run").splitlines()
    assert planned[-1].startswith("15 trials, about ")
    assert sum("null trial" in line for line in planned) == 3


def test_a_reason_that_trials_share_is_told_once(
    sweep: experiment.Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "client: Look before the runs: ssh: connect to host 10.77.0.11 port 22: No route to host"

    def refuse(trial: Json, files: Json) -> int:
        files.clear()
        files["failed.json"] = {
            "schema": 3,
            "host": "client",
            "task": "Look",
            "status": "failed",
            "reasons": [reason],
        }
        return 2

    begun = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    execute(begun, FakeLab(spoil=refuse))
    told = capsys.readouterr().err
    assert (told.count("failed  "), told.count(reason), told.count("as above")) == (8, 1, 7)


def test_trials_that_went_well_have_no_reason_to_share(
    sweep: experiment.Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(driver.start(tmp_path, "x", sweep, SETUP, quick=False), FakeLab())
    told = capsys.readouterr().err
    assert (told.count("ok  "), told.count("as above")) == (8, 0)
