"""``dasklab minipve`` acts on the lab of the inventory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.commands.minipve import minipve
from dasklab.machines.inventory.ansible_inventory import DEFAULT


def test_state_of_the_lab_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`minipve stop --purge` of another instance would delete its disks."""
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path / "lab"))
    monkeypatch.setenv("MINIPVE_STATE", str(tmp_path / "other"))
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    assert CliRunner().invoke(minipve, ["-i", str(DEFAULT), "stop", "--purge"]).exit_code == 0
    (command,) = commands
    assert command[command.index("--state") + 1] == str(tmp_path / "lab")
    assert command[-2:] == ["stop", "--purge"]
