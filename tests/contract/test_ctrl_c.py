"""Ctrl-C ends each program in a line or two, with status 130."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from dasklab.cli import main
from daskwire.terminal.cli import wire
from minipve.endpoint.cli import minipve

from tests.waiting import until

SLOW_CLICK = """
import pathlib, time
pathlib.Path(__file__).with_name("imports").touch()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("program", "words"),
    [(main, ["history"]), (main, ["destroy"]), (wire, ["ops", "-"]), (minipve, ["check"])],
    ids=["dasklab", "dasklab destroy", "daskwire", "minipve"],
)
def test_ctrl_c_is_no_traceback(
    program: click.Group, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    command = program.get_command(click.Context(program), words[0])
    assert command
    monkeypatch.setattr(command, "invoke", interrupt)
    done = CliRunner().invoke(program, words)
    assert done.exit_code == 130
    assert "stopped" in done.stderr and len(done.stderr.splitlines()) <= 3


@pytest.mark.parametrize("program", ["dasklab", "daskwire", "minipve"])
def test_ctrl_c_during_imports_is_one_line(program: str, tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(SLOW_CLICK)
    packages = os.pathsep.join([str(tmp_path), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-m", program, "--help"],
        env=os.environ | {"PYTHONPATH": packages},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until((tmp_path / "imports").exists, f"{program} to import click")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", f"{program}: stopped\n")
    assert process.returncode == 130
