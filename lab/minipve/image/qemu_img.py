"""Disk images: qemu-img's few verbs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minipve import process
from minipve.process import MachineError


@dataclass(frozen=True)
class DiskInfo:
    """What qemu-img says of an image; ``backing`` is the absolute path of the image it is a clone of."""

    format: str
    virtual_bytes: int
    actual_bytes: int
    backing: Path | None


def _format(path: Path) -> list[str | Path]:
    """The format as an option: told by the name, never left to a guess at what a guest may have written."""
    return ["-f", path.suffix.removeprefix(".") or "raw"]


def info(path: Path) -> DiskInfo:
    """Format, virtual and actual size of an image, also while a machine uses it."""
    said: dict[str, Any] = process.run_json(["qemu-img", "info", "-U", *_format(path), "--output=json", path])
    named = said.get("full-backing-filename")
    backing = Path(named).resolve() if named else None
    return DiskInfo(said["format"], said["virtual-size"], said["actual-size"], backing)


def create(path: Path, size_bytes: int) -> None:
    """An empty qcow2 of ``size_bytes``."""
    _prepare(path)
    process.run(["qemu-img", "create", "-q", "-f", "qcow2", path, str(size_bytes)])


def import_image(source: Path, target: Path) -> None:
    """A qcow2 with the contents of any image."""
    _prepare(target)
    _convert(["-O", "qcow2"], source, target, timeout_s=3600)


def _convert(options: list[str], source: Path, target: Path, timeout_s: float) -> None:
    words = ["qemu-img", "convert", "-W", *options, *_format(source), source, target]
    process.run(words, timeout_s=timeout_s)


def full_clone(source: Path, target: Path, snapname: str | None = None) -> None:
    """An independent copy, without a backing image, of the present contents or of what a snapshot kept."""
    _prepare(target)
    kept = ["-l", f"snapshot.name={snapname}"] if snapname else []
    _convert(["-O", "qcow2", *kept], source, target, timeout_s=3600)


def make_base(path: Path, base: Path) -> None:
    """Turn a disk into the read-only base of linked clones, under its new name."""
    path.rename(base)
    base.chmod(0o444)


def linked_clone(base: Path, target: Path) -> None:
    """An overlay that holds only what differs from ``base``, which it names by a relative path."""
    _prepare(target)
    relative = os.path.relpath(base, target.parent)
    process.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", relative, target])


def resize(path: Path, size_bytes: int) -> None:
    """Grow a disk of a stopped machine."""
    if size_bytes < info(path).virtual_bytes:
        raise MachineError("shrinking disks is not supported")
    process.run(["qemu-img", "resize", "-q", *_format(path), path, str(size_bytes)])


def snapshot(path: Path, name: str) -> None:
    """Keep the present contents of a stopped machine's disk under a name, inside of the image."""
    process.run(["qemu-img", "snapshot", "-q", "-c", name, path], timeout_s=600)


def roll_back(path: Path, name: str) -> None:
    """Bring back what a snapshot kept."""
    process.run(["qemu-img", "snapshot", "-q", "-a", name, path], timeout_s=600)


def drop_snapshot(path: Path, name: str) -> None:
    """Forget a snapshot."""
    process.run(["qemu-img", "snapshot", "-q", "-d", name, path], timeout_s=600)


def _prepare(target: Path) -> None:
    if target.exists():
        raise MachineError(f"disk image '{target}' already exists")
    target.parent.mkdir(parents=True, exist_ok=True)
    free = os.statvfs(target.parent)
    if free.f_bavail * free.f_frsize < 64 * 2**20:
        raise MachineError(f"no space left on device: {target.parent}")
