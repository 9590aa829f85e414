from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lab.cli import ELSEWHERE, UNREACHABLE, main
from lab.running import playbook


def run(*argv: str) -> Result:
    return CliRunner().invoke(main, argv)


def test_help_lists_every_command_and_teaches_the_usual_path() -> None:
    told = run("--help").output
    for name in ("plan", "up", "status", "run", "ssh", "destroy", "doctor", "minipve", "wire", "report"):
        assert f"\n  {name} " in told
    assert "dasklab up " in told


@pytest.mark.parametrize("name", ["plan", "up", "status", "ssh", "destroy", "doctor", *ELSEWHERE])
def test_every_command_has_help(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 4


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("plan", "-i", "nowhere.yml"), "Error: inventory nowhere.yml does not exist"),
        (("ssh", "worker-9"), "no host 'worker-9' in inventory"),
        (("up", "-i", "nowhere.yml"), "inventory nowhere.yml does not exist"),
    ],
)
def test_a_users_mistake_is_one_line_and_no_traceback(argv: tuple[str, ...], told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab", *argv], capture_output=True, text=True, check=False, cwd=Path("/")
    )
    assert done.returncode == 1
    assert told.removeprefix("Error: ") in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_machines_that_do_not_answer_are_said_to_be_created_by_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playbook, "run", lambda *_, **__: UNREACHABLE)
    result = run("status")
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].strip() == "dasklab up creates those that are missing"


def test_an_unknown_command_is_refused() -> None:
    result = run("fly")
    assert result.exit_code == 2
    assert "No such command 'fly'" in result.output
