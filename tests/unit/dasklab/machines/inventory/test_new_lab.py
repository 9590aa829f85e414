from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.machines.inventory import new_lab
from dasklab.machines.inventory.ansible_inventory import Inventory, default_inventory
from dasklab.machines.inventory.variables import open_lab


@pytest.mark.parametrize("kind", ["machines", "containers"])
def test_new_lab_is_complete_and_named_after_its_folder(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = open_lab(new_lab.create(tmp_path / "mylab", kind))
    assert inventory.hosts() == ["client", "scheduler", "worker-1", "worker-2", "worker-3"]
    assert inventory.value("client", "lab_name") == "mylab"
    assert inventory.value("client", "lab_guests") == {"machines": "vm", "containers": "container"}[kind]
    monkeypatch.chdir(tmp_path / "mylab")
    assert default_inventory() == inventory.path


@pytest.mark.parametrize("kind", ["proxmox", "existing"])
def test_new_lab_from_an_example_has_five_hosts(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXMOX_HOST", "192.0.2.1")
    path = new_lab.create(tmp_path / "mine", kind)
    assert len(Inventory(path).hosts()) == 5
    assert sorted(entry.name for entry in path.parent.parent.iterdir()) == ["ansible.cfg", "inventory"]


def test_ansible_settings_point_to_the_projects_plugins(tmp_path: Path) -> None:
    new_lab.create(tmp_path / "mylab", "machines")
    settings = (tmp_path / "mylab" / "ansible.cfg").read_text()
    folders = [
        line.partition(" = ")[2]
        for line in settings.splitlines()
        if line.startswith(("roles_path", "filter_plugins", "strategy_plugins"))
    ]
    assert len(folders) == 3 and all(
        Path(folder).is_absolute() and Path(folder).is_dir() for folder in folders
    )


def test_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(LabError, match="is not empty"):
        new_lab.create(tmp_path, "machines")
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["My Lab", "1lab", "l" * 40])
def test_invalid_lab_name_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["init", str(tmp_path / name)])
    assert result.exit_code == 1
    assert "cannot be a lab's name; allowed:" in result.stderr
    assert list(tmp_path.iterdir()) == []
