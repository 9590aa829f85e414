"""A container's files and templates."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base.paths import Paths
from minipve.guests.lxc import rootfs


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "state", tmp_path / "cache")


def test_sweep_removes_unneeded_folders(paths: Paths) -> None:
    for name in ("aa-0", "bb-100000", "cc-0"):
        (paths.templates / name).mkdir(parents=True)
    for vmid, template in ((100, "aa-0"), (101, "bb-100000")):
        (paths.containers / str(vmid)).mkdir(parents=True)
        (paths.containers / str(vmid) / "template").write_text(template)
    rootfs.sweep(paths, lambda vmid: vmid == 100, [])
    assert [entry.name for entry in paths.containers.iterdir()] == ["100"]
    assert [entry.name for entry in paths.templates.iterdir()] == ["aa-0"]


def test_missing_files_are_an_error(paths: Paths) -> None:
    with pytest.raises(Exception, match="the files of CT 100 are missing"):
        rootfs.layers(100, paths)
