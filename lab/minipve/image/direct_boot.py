"""Direct kernel boot: take the kernel out of a disk image for QEMU, as Xen's pygrub does.

This saves an emulated machine ten seconds of firmware, boot loader and unpacking. It works for an image
that is one ext4 file system with an entry of the Boot Loader Specification (/boot/loader/entries/*.conf),
which names kernel, initramfs and command line.

The disk is read at every start, so a machine boots what its disk contains now. The files are cached for all
instances of a user under a digest of their content, so nobody can plant a kernel for somebody else's
machine. When the cache is too large, the least recently used files are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minipve.image import ext4, nbd
from minipve.image.ext4 import FileSystem, Inode
from minipve.paths import Paths
from minipve.process import MachineError

ENTRIES = "/boot/loader/entries"
_ENTRY_KEYS = {"kernel": "linux", "initrd": "initrd"}  # name in the cache -> key in the entry
MAX_CACHE_BYTES = 2**30
_ENTRY_BYTES, _MAX_FILE_BYTES = 64 * 1024, 256 * 2**20
_ENTRY_NAME = re.compile(r"[\w.@+-]+\.conf", re.ASCII)
_FILE_PATH = re.compile(r"(?:/[\w.@+~-]+)+", re.ASCII)


@dataclass(frozen=True)
class Boot:
    """The kernel, initramfs and kernel command line that QEMU boots."""

    kernel: Path
    initrd: Path
    cmdline: str


def extract(image: Path, paths: Paths) -> Boot | None:
    """Return what to boot of an image, or None if only its own boot loader can boot it.

    The returned files may be removed once the caller leaves `cache_in_use`.

    Raises:
        MachineError: the image is damaged or names files that cannot be booted.
    """
    with nbd.open_image(image, image.suffix.removeprefix(".") or "raw") as read:
        system = ext4.open_disk(read)
        entry = None if system is None else _entry(system)
        if system is None or entry is None:
            return None
        files = {name: _file(system, entry.get(key, "")) for name, key in _ENTRY_KEYS.items()}
        cmdline = entry.get("options", "")
        cached = paths.boot / _digest(system, files, cmdline)
        if not cached.exists():
            _copy(system, files, cached)
    os.utime(cached)  # the time of its last use, for _sweep
    return Boot(cached / "kernel", cached / "initrd", cmdline)


def _entry(system: FileSystem) -> dict[str, str] | None:
    """Return the boot loader entry whose name sorts first, or None if there is none."""
    folder = system.find(ENTRIES)
    if folder is None or not stat.S_ISDIR(folder.mode):
        return None
    for name in sorted(name for name, _ in system.names(folder) if _ENTRY_NAME.fullmatch(name)):
        inode = system.find(f"{ENTRIES}/{name}")
        if inode is not None and stat.S_ISREG(inode.mode) and inode.size <= _ENTRY_BYTES:
            return boot_entry(b"".join(system.content(inode)).decode(errors="replace"))
    return None


def boot_entry(text: str) -> dict[str, str]:
    """Parse an entry of the Boot Loader Specification (pure)."""
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _file(system: FileSystem, path: str) -> Inode:
    if not _FILE_PATH.fullmatch(path):
        raise MachineError(f"the image's boot entry names an impossible file: {path[:100]!r}")
    inode = system.file(path)
    if inode.size > _MAX_FILE_BYTES:
        raise MachineError(f"{path} in the image is too large to boot")
    if inode.size == 0:
        raise MachineError(f"{path} in the image is empty")
    return inode


def _digest(system: FileSystem, files: dict[str, Inode], cmdline: str) -> str:
    digest = hashlib.sha256(f"{cmdline}\0".encode())
    for name, inode in files.items():
        digest.update(f"{name}\0{inode.size}\0".encode())
        for part in system.content(inode):
            digest.update(part)
    return digest.hexdigest()


def _copy(system: FileSystem, files: dict[str, Inode], target: Path) -> None:
    """Copy the files into the folder ``target``, which appears complete or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".boot-", dir=target.parent) as name:
        draft = Path(name) / "new"
        draft.mkdir()
        for file, inode in files.items():
            with (draft / file).open("wb") as stream:
                stream.writelines(system.content(inode))
        try:
            draft.rename(target)
        except OSError:  # another process was quicker with the same files
            if not target.exists():
                raise


@contextlib.contextmanager
def cache_in_use(paths: Paths) -> Iterator[None]:
    """Protect the cached files until the block ends; then sweep the cache if nobody else uses it."""
    paths.boot.mkdir(parents=True, exist_ok=True)
    with (paths.boot / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _sweep(paths.boot)


def _sweep(folder: Path) -> None:
    """Remove the least recently used folders until the rest is small enough, and folders of another kind."""
    total_bytes = 0
    for entry in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True):
        if not entry.is_dir():
            continue
        total_bytes += sum(file.stat().st_size for file in entry.iterdir() if file.is_file())
        if total_bytes > MAX_CACHE_BYTES or not re.fullmatch(r"[0-9a-f]{64}", entry.name):
            shutil.rmtree(entry)
