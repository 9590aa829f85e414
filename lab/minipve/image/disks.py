"""Disk images: qemu-img's few verbs, and the kernel inside an image.

An image that is one whole-disk ext4 file system has no boot loader; its kernel is read out of its /boot
and handed to QEMU, as Xen's pygrub does it. Which one is said by the image itself, by an entry of the Boot
Loader Specification (/boot/loader/entries/*.conf). That saves an emulated machine seconds of firmware,
boot loader and unpacking. A clone boots the kernel of its template: the copy is kept by file system UUID.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.minipve import process
from lab.minipve.paths import Paths
from lab.minipve.process import MachineError

SUPERBLOCK_BYTES = 4096
_ENTRY_FILE = re.compile(r"^/(\d+)/100\d{3}/\d+/\d+/([\w.@+-]+\.conf)/(\d+)/$", re.MULTILINE)
_ENTRY_BYTES, _BOOT_FILE_BYTES = 64 * 1024, 512 * 2**20
_INSIDE = re.compile(r"(?:/[\w.@+~-]+)+", re.ASCII)


@dataclass(frozen=True)
class DiskInfo:
    """What qemu-img says of an image; ``backing`` is the absolute path of the image it is a clone of."""

    format: str
    virtual_bytes: int
    actual_bytes: int
    backing: Path | None


@dataclass(frozen=True)
class Boot:
    """What QEMU boots directly: two files and a command line (without ``root=``)."""

    kernel: Path
    initrd: Path
    cmdline: str


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


def extract_boot(image: Path, paths: Paths) -> Boot | None:
    """Kernel, initramfs and command line of an image; None when it has its own boot loader."""
    identity = _file_system_id(image)
    if identity is None:
        return None
    kept = paths.boot / identity
    if not kept.exists() and not _take_out(image, kept):
        return None
    return Boot(kept / "kernel", kept / "initrd", (kept / "cmdline").read_text())


def _file_system_id(image: Path) -> str | None:
    """The UUID of the ext4 file system that an image starts with, read through all its backing images."""
    with tempfile.TemporaryDirectory() as scratch:
        start = Path(scratch) / "start"
        source, target = f"if={image}", f"of={start}"
        size = [f"bs={SUPERBLOCK_BYTES}", "count=1"]
        process.run(["qemu-img", "dd", "-U", *_format(image), "-O", "raw", *size, source, target])
        return ext4_uuid(start.read_bytes())


def ext4_uuid(start: bytes) -> str | None:
    """The UUID in an ext4 superblock, 1024 bytes into the file system (kernel's fs/ext4/ext4.h; pure)."""
    if start[1024 + 0x38 : 1024 + 0x3A] != b"\x53\xef":
        return None
    return str(uuid.UUID(bytes=start[1024 + 0x68 : 1024 + 0x78]))


def _take_out(image: Path, kept: Path) -> bool:
    """Copy the boot files of an image into ``kept``, which appears complete or not at all."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".boot-", dir=kept.parent) as name:
        scratch = Path(name)
        raw = image
        if info(image).format != "raw":
            raw = scratch / "raw"
            _convert(["-U", "-O", "raw"], image, raw, timeout_s=600)
        entry = _entry(raw)
        if entry is None:
            return False
        fresh = scratch / "new"
        fresh.mkdir()
        _dump(raw, entry["linux"], fresh / "kernel")
        _dump(raw, entry["initrd"], fresh / "initrd")
        (fresh / "cmdline").write_text(entry.get("options", ""))
        _publish(fresh, kept)
    return True


def _publish(fresh: Path, kept: Path) -> None:
    """Rename into place; another process may have been quicker with the same files."""
    try:
        fresh.rename(kept)
    except OSError:
        if not kept.exists():
            raise
        shutil.rmtree(fresh)


def _entry(raw: Path) -> dict[str, str] | None:
    """The first boot loader entry of a file system, by name.

    It is read as text and never laid down as a tree: a file system made to that end has links in it, through
    which files of this machine would be read or written.
    """
    found = _ENTRY_FILE.findall(process.run(["debugfs", "-R", "ls -p /boot/loader/entries", raw]))
    small = sorted((name, inode) for inode, name, size in found if int(size) <= _ENTRY_BYTES)
    return boot_entry(process.run(["debugfs", "-R", f"cat <{small[0][1]}>", raw])) if small else None


def boot_entry(text: str) -> dict[str, str]:
    """Keys and values of a Boot Loader Specification entry (pure)."""
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _dump(raw: Path, inside: str, target: Path) -> None:
    """One file out of a file system; debugfs's exit code says nothing, the file does."""
    if not _INSIDE.fullmatch(inside):
        raise MachineError(f"no {inside} can be taken out of {raw.name}: strange name")
    size = re.search(r"\bSize: (\d+)", process.run(["debugfs", "-R", f"stat {inside}", raw]))
    if size and int(size[1]) > _BOOT_FILE_BYTES:
        raise MachineError(f"{inside} in the file system of {raw.name} is too large to be booted")
    process.run(["debugfs", "-R", f"dump {inside} {target}", raw], timeout_s=120)
    if not target.exists() or target.stat().st_size == 0:
        raise MachineError(f"no {inside} in the file system of {raw.name}")


def _prepare(target: Path) -> None:
    if target.exists():
        raise MachineError(f"disk image '{target}' already exists")
    target.parent.mkdir(parents=True, exist_ok=True)
    free = os.statvfs(target.parent)
    if free.f_bavail * free.f_frsize < 64 * 2**20:
        raise MachineError(f"no space left on device: {target.parent}")
