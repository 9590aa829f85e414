"""Disk images, by qemu-img: create, import, clone, resize, snapshot."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minipve.base import process
from minipve.base.errors import MachineError


@dataclass(frozen=True)
class DiskInfo:
    """Facts about an image; ``backing`` is the absolute path of the image that it is a linked clone of."""

    format: str
    virtual_bytes: int
    actual_bytes: int
    backing: Path | None


def _format(path: Path) -> list[str | Path]:
    """The option for an image's format, from the file name: a guest could make qemu-img guess another one."""
    return ["-f", path.suffix.removeprefix(".") or "raw"]


def info(path: Path) -> DiskInfo:
    """Return an image's format and sizes. A machine may be using it."""
    row: dict[str, Any] = process.run_json(["qemu-img", "info", "-U", *_format(path), "--output=json", path])
    backing_file = row.get("full-backing-filename")
    backing = Path(backing_file).resolve() if backing_file else None
    return DiskInfo(row["format"], row["virtual-size"], row["actual-size"], backing)


def create(path: Path, size_bytes: int) -> None:
    """Create an empty qcow2 image."""
    _prepare(path)
    process.run(["qemu-img", "create", "-q", "-f", "qcow2", path, str(size_bytes)])


def import_image(source: Path, target: Path) -> None:
    """Copy an image of any format to a new qcow2 image, if that fits: a few bytes may stand for terabytes."""
    measure = ["qemu-img", "measure", "-O", "qcow2", *_format(source), "--output=json", source]
    _prepare(target, process.run_json(measure)["required"])
    _convert(["-O", "qcow2"], source, target, timeout_s=3600)


def _convert(options: list[str], source: Path, target: Path, timeout_s: float) -> None:
    words = ["qemu-img", "convert", "-W", *options, *_format(source), source, target]
    process.run(words, timeout_s=timeout_s)


def full_clone(source: Path, target: Path, snapname: str | None = None) -> None:
    """Copy a disk, as it is or as it was at a snapshot, to a new image without a backing file."""
    _prepare(target)
    snapshot = ["-l", f"snapshot.name={snapname}"] if snapname else []
    _convert(["-O", "qcow2", *snapshot], source, target, timeout_s=3600)


def make_base(path: Path, base: Path) -> None:
    """Rename a disk to ``base`` and make it read-only: linked clones depend on it."""
    path.rename(base)
    base.chmod(0o444)


def linked_clone(base: Path, target: Path) -> None:
    """Create an image that stores only its differences from ``base``, to which it has a relative path."""
    _prepare(target)
    relative = os.path.relpath(base, target.parent)
    process.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", relative, target])


def resize(path: Path, size_bytes: int) -> None:
    """Grow a disk of a stopped machine."""
    if size_bytes < info(path).virtual_bytes:
        raise MachineError("shrinking disks is not supported")
    process.run(["qemu-img", "resize", "-q", *_format(path), path, str(size_bytes)])


def snapshot(path: Path, name: str) -> None:
    """Take an internal snapshot of a stopped machine's disk."""
    process.run(["qemu-img", "snapshot", "-q", "-c", name, path], timeout_s=600)


def roll_back(path: Path, name: str) -> None:
    """Restore the content that a stopped machine's disk had at a snapshot."""
    process.run(["qemu-img", "snapshot", "-q", "-a", name, path], timeout_s=600)


def delete_snapshot(path: Path, name: str) -> None:
    process.run(["qemu-img", "snapshot", "-q", "-d", name, path], timeout_s=600)


def _prepare(target: Path, size_bytes: int = 0) -> None:
    if target.exists():
        raise MachineError(f"disk image '{target}' already exists")
    target.parent.mkdir(parents=True, exist_ok=True)
    filesystem = os.statvfs(target.parent)
    if filesystem.f_bavail * filesystem.f_frsize < size_bytes + 64 * 2**20:
        raise MachineError(f"no space left on device: {target.parent}")
