"""What the shell completes, through click's own protocol."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.model.experiments import experiment

from tests.unit.dasklab.commands.fake_ssh import INVENTORY


def completed(line: str) -> list[str]:
    """Return what bash is offered for the last word of a line."""
    words = line.split(" ")
    environment = {
        "_DASKLAB_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "DASKLAB_INVENTORY": str(INVENTORY),
    }
    output = CliRunner().invoke(main, [], env=environment, prog_name="dasklab").stdout
    return [row.partition(",")[2] for row in output.splitlines() if row.startswith("plain,")]


@pytest.mark.parametrize("command", ["ssh", "tc", "capture"])
def test_hosts_of_the_inventory_are_completed(command: str) -> None:
    assert completed(f"dasklab {command} w") == ["worker-1", "worker-2", "worker-3"]


def test_hosts_of_a_named_inventory_are_completed(tmp_path: object) -> None:
    assert completed(f"dasklab -i {INVENTORY} tc sch") == ["scheduler"]
    assert completed(f"dasklab -i {tmp_path}/nowhere.yml tc sch") == []


def test_experiments_and_commands_are_completed() -> None:
    names = [name for name in experiment.names() if name.startswith("delay")]
    assert names and completed("dasklab run delay") == names
    assert completed("dasklab exp") == ["explain"]
