"""Ctrl-C ends each program in a line or two, with status 130."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from dasklab.cli import main
from daskwire.terminal.cli import wire
from minipve.cli import minipve


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
