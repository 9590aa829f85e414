"""Copies, clones and sizes of disk images."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest
from minipve.base.errors import MachineError
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


def test_image_that_would_fill_the_disk_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All clusters of its 1 GiB are the same one, so that it has 320 KiB."""
    cluster, data = 2**16, b"x" * 2**16
    header = struct.pack(
        ">4sIQIIQIIQQIIQ", b"QFI\xfb", 2, 0, 0, 16, 2**30, 0, 2, cluster, 4 * cluster, 1, 0, 0
    )
    tables = struct.pack(">2Q", *[2 * cluster | 1 << 63] * 2).ljust(cluster, b"\0")
    tables += struct.pack(">Q", 3 * cluster | 1 << 63) * 8192
    (tmp_path / "bomb.qcow2").write_bytes(header.ljust(cluster, b"\0") + tables + data + bytes(cluster))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=2**18, f_frsize=4096))
    with pytest.raises(MachineError, match="no space left on device"):
        qemu_img.import_image(tmp_path / "bomb.qcow2", tmp_path / "disk.qcow2")
    assert not (tmp_path / "disk.qcow2").exists()
