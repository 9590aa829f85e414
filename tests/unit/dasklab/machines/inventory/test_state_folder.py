"""A state folder that belongs to another lab is refused before anything is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.machines import local_endpoint
from dasklab.machines.inventory.ansible_inventory import DEFAULT
from dasklab.machines.inventory.state_folder import refuse_foreign


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of lab mylab, which the environment names for the default lab."""
    (tmp_path / "account.json").write_text(json.dumps({"user": "lab@pve", "lab": "mylab"}))
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("words", [["plan"], ["status"], ["doctor"], ["up"], ["destroy", "--yes"]])
def test_every_command_names_the_lab_that_owns_the_folder(words: list[str], foreign: Path) -> None:
    outcome = CliRunner().invoke(main, [*words, "-i", str(DEFAULT)])
    assert outcome.exit_code == 1
    assert f"state folder {foreign} belongs to lab mylab, not to lab dasklab" in outcome.output
    assert [path.name for path in foreign.iterdir()] == ["account.json"]


def test_endpoint_is_not_started_in_the_folder_of_another_lab(foreign: Path) -> None:
    with pytest.raises(LabError, match="belongs to lab mylab, not to lab lab2"):
        local_endpoint.start("lab2", foreign, "10.77.0.1/24", 1)


@pytest.mark.parametrize("content", ["", "[]", '{"user": "lab@pve"}', '{"lab": "lab2"}'])
def test_other_folders_are_accepted(content: str, tmp_path: Path) -> None:
    refuse_foreign(tmp_path, "lab2")
    (tmp_path / "account.json").write_text(content)
    refuse_foreign(tmp_path, "lab2")
