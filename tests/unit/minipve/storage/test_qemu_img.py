"""Copies, clones and sizes of disk images."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from minipve.base.process import MachineError
from minipve.storage import qemu_img

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is needed")


def test_linked_clone_has_its_own_size(tmp_path: Path) -> None:
    base, clone = tmp_path / "100" / "base.qcow2", tmp_path / "101" / "disk.qcow2"
    qemu_img.create(base, 2**20)
    qemu_img.linked_clone(base, clone)
    qemu_img.resize(clone, 2**21)
    assert qemu_img.info(clone).virtual_bytes == 2**21
    assert qemu_img.info(clone).backing == base
    with pytest.raises(MachineError, match="shrinking disks is not supported"):
        qemu_img.resize(clone, 2**20)
    with pytest.raises(MachineError, match="already exists"):
        qemu_img.create(clone, 2**20)


def test_full_clone_has_no_backing_file(tmp_path: Path) -> None:
    qemu_img.create(tmp_path / "a.qcow2", 2**20)
    qemu_img.full_clone(tmp_path / "a.qcow2", tmp_path / "b.qcow2")
    assert qemu_img.info(tmp_path / "b.qcow2").backing is None
