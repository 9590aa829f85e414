"""The kernel inside a disk image, for QEMU to boot directly, as Xen's pygrub does it.

An image that is one whole-disk ext4 file system has no boot loader. Which kernel it boots is written in the
image itself, in an entry of the Boot Loader Specification (/boot/loader/entries/*.conf). That saves an
emulated machine seconds of firmware, boot loader and unpacking.

The disk is read at every start, so a machine boots what its disk holds now. Copies are kept in a cache that
all instances of a user share, under the digest of what they hold: nobody can put a kernel where another
machine's is looked for. What has not been used longest is removed when the cache is too large.
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
MAX_CACHE_BYTES = 2**30
_ENTRY_BYTES, _MAX_FILE_BYTES = 64 * 1024, 256 * 2**20
_ENTRY_NAME = re.compile(r"[\w.@+-]+\.conf", re.ASCII)
_INSIDE = re.compile(r"(?:/[\w.@+~-]+)+", re.ASCII)


@dataclass(frozen=True)
class Boot:
    """What QEMU boots directly: two files and a command line (without ``root=``)."""

    kernel: Path
    initrd: Path
    cmdline: str


def extract(image: Path, paths: Paths) -> Boot | None:
    """Kernel, initramfs and command line of an image; None when it has its own boot loader.

    The files stay only as long as the caller is ``using`` them.
    """
    with nbd.opened(image, image.suffix.removeprefix(".") or "raw") as read:
        system = ext4.opened(read)
        entry = None if system is None else _entry(system)
        if system is None or entry is None:
            return None
        files = {name: _file(system, entry.get(key, "")) for name, key in _NAMES.items()}
        cmdline = entry.get("options", "")
        kept = paths.boot / _digest(system, files, cmdline)
        if not kept.exists():
            _keep(system, files, kept)
    os.utime(kept)  # it was used now
    return Boot(kept / "kernel", kept / "initrd", cmdline)


_NAMES = {"kernel": "linux", "initrd": "initrd"}


def _entry(system: FileSystem) -> dict[str, str] | None:
    """The first boot loader entry of a file system, by name."""
    folder = system.find(ENTRIES)
    if folder is None or not stat.S_ISDIR(folder.mode):
        return None
    for name in sorted(name for name, _ in system.names(folder) if _ENTRY_NAME.fullmatch(name)):
        found = system.find(f"{ENTRIES}/{name}")
        if found is not None and stat.S_ISREG(found.mode) and found.size <= _ENTRY_BYTES:
            return boot_entry(b"".join(system.content(found)).decode(errors="replace"))
    return None


def boot_entry(text: str) -> dict[str, str]:
    """Keys and values of a Boot Loader Specification entry (pure)."""
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _file(system: FileSystem, inside: str) -> Inode:
    if not _INSIDE.fullmatch(inside):
        raise MachineError(f"the image's boot entry names a file that cannot be: {inside[:100]!r}")
    found = system.file(inside)
    if found.size > _MAX_FILE_BYTES:
        raise MachineError(f"{inside} in the file system is too large to be booted")
    if found.size == 0:
        raise MachineError(f"{inside} in the file system is empty")
    return found


def _digest(system: FileSystem, files: dict[str, Inode], cmdline: str) -> str:
    digest = hashlib.sha256(f"{cmdline}\0".encode())
    for name, inode in files.items():
        digest.update(f"{name}\0{inode.size}\0".encode())
        for part in system.content(inode):
            digest.update(part)
    return digest.hexdigest()


def _keep(system: FileSystem, files: dict[str, Inode], kept: Path) -> None:
    """Copy the files into ``kept``, which appears complete or not at all."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".boot-", dir=kept.parent) as name:
        fresh = Path(name) / "new"
        fresh.mkdir()
        for file, inode in files.items():
            with (fresh / file).open("wb") as stream:
                stream.writelines(system.content(inode))
        try:
            fresh.rename(kept)
        except OSError:  # another process was quicker with the same files
            if not kept.exists():
                raise


@contextlib.contextmanager
def using(paths: Paths) -> Iterator[None]:
    """Keep what the block extracts until its end; then sweep the cache, unless others are using it."""
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
    """Remove what was not used longest, until the rest is small enough, and whatever is no copy of ours."""
    kept = 0
    for copy in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True):
        if not copy.is_dir():
            continue
        kept += sum(file.stat().st_size for file in copy.iterdir() if file.is_file())
        if kept > MAX_CACHE_BYTES or not re.fullmatch(r"[0-9a-f]{64}", copy.name):
            shutil.rmtree(copy)
