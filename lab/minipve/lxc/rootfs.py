"""A container's tree: its template's archive, unpacked once, under what the container has changed of it.

On a real node a container has a disk image, filled from the archive. Here it has an overlay: two folders
below `containers/VMID`, mounted over the unpacked template in the mount namespace of whoever needs it. An
archive is unpacked once for all containers, by the digest of its contents; it may then be deleted. For
unprivileged containers it is unpacked with its owners shifted to the user ids that they run as. Of the lab's
own template the tree is kept beside it in the cache, and linked file by file, for the instances to come.

An archive may come from anybody who may upload one. Tar leaves members outside of the tree alone; it runs
with the user ids of an unprivileged container where it can; device nodes are dead in the overlay, and nobody
else can enter the folder, so that neither they nor set-user-id programs are of use to this machine's users.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from minipve import process
from minipve.atomic import UNFINISHED, flocked
from minipve.image import golden
from minipve.paths import Paths
from minipve.process import MachineError

_PROGRAMS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}
_KEEP = (
    "--numeric-owner",
    "--same-permissions",
    "--xattrs",
    "--xattrs-include=security.capability",
    "--sparse",
)
IDS = 65536
_KEEP_S = 600.0  # the most that another instance may take to unpack what is kept
_unpacking: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
_COUNT_S = 30.0
_counted: dict[Path, tuple[float, int]] = {}
_digests: dict[tuple[int, int, int], str] = {}


def digest(archive: Path) -> str:
    """The SHA-256 of a file; asked of the same file again it is known."""
    status = archive.stat()
    key = (status.st_ino, status.st_size, status.st_mtime_ns)
    if key not in _digests:
        with archive.open("rb") as stream:
            _digests[key] = hashlib.file_digest(stream, "sha256").hexdigest()
    return _digests[key]


def make(vmid: int, archive: Path, first_id: int, paths: Paths) -> None:
    """A new container's folders over the archive's tree; ``first_id`` is its root (0: the host's own).

    Which tree it is over is written down first: from then on nobody sweeps that away.
    """
    name = f"{digest(archive)}-{first_id}"
    own = paths.containers / str(vmid)
    paths.containers.mkdir(exist_ok=True, mode=0o700)
    forget(vmid, paths)
    for folder in ("upper", "work"):
        (own / folder).mkdir(parents=True)
    os.chown(own / "upper", first_id, first_id)
    (own / "template").write_text(name)
    with _unpacking[paths.templates / name]:
        if not (paths.templates / name).exists():
            _fill(paths.templates / name, archive, first_id, paths)


def _fill(tree: Path, archive: Path, first_id: int, paths: Paths) -> None:
    """Unpack an archive, or link what is kept of it where that is on the same file system."""
    own = golden.template_path(paths)
    kept = own.parent / "trees" / str(first_id)
    tree.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if _same(archive, own) and own.stat().st_dev == tree.parent.stat().st_dev:
        kept.parent.mkdir(exist_ok=True, mode=0o700)
        with flocked(kept.parent / ".lock", _KEEP_S):
            for left in kept.parent.glob(f"{UNFINISHED}*"):  # by an instance that was killed
                shutil.rmtree(left)
            if not kept.exists():
                with _fresh(kept) as scratch:
                    _unpack(archive, first_id, scratch)
        with _fresh(tree) as scratch:
            process.run(["cp", "-al", f"{kept}/.", scratch], timeout_s=600)
    else:
        with _fresh(tree) as scratch:
            _unpack(archive, first_id, scratch)


def _same(archive: Path, own: Path) -> bool:
    """Is an archive the lab's own template, byte by byte?"""
    return own.exists() and archive.stat().st_size == own.stat().st_size and digest(archive) == digest(own)


@contextmanager
def _fresh(tree: Path) -> Iterator[Path]:
    """A folder that gets its name when it is whole, and else is gone."""
    scratch = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=tree.parent))
    try:
        yield scratch
        scratch.rename(tree)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _unpack(archive: Path, first_id: int, target: Path) -> None:
    target.chmod(0o755)
    os.chown(target, first_id, first_id)
    _run_tar(archive, first_id, target)
    if not any((target / name).is_dir() for name in ("etc", "bin", "usr")):
        raise MachineError("unable to detect OS distribution")


def _run_tar(archive: Path, first_id: int, target: Path) -> None:
    """Unpack into ``target``, which is the program's working directory: others' ids could not get there."""
    process.need("tar", *filter(None, [_PROGRAMS.get(archive.suffix)]))
    unpacker = _PROGRAMS.get(archive.suffix)
    how = ["-I", str(process.which(unpacker))] if unpacker else []
    words = [str(process.which("tar")), "-x", *how, "-f", "-", *_KEEP, "--anchored", "--exclude=./dev/*"]
    with archive.open("rb") as stream:
        done = subprocess.run(
            [*shifted_words(first_id), *words],
            stdin=stream,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=target,
            env={"LC_ALL": "C"},
            timeout=600,
        )
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no message"]
        told = next((line for line in said if os.strerror(errno.ENOSPC) in line), said[0])  # the last sums up
        raise MachineError(f"command 'tar' failed: exit code {done.returncode} ({told})")


def shifted_words(first_id: int) -> list[str]:
    """The words before a command that run it as root of an unprivileged container; none for a privileged one.

    Without a PATH lxc-usernsexec writes the ids itself, as root may; the programs of package uidmap would ask
    for an entry in /etc/subuid.
    """
    if not first_id:
        return []
    maps = [word for kind in "ug" for word in ("-m", f"{kind}:0:{first_id}:{IDS}")]
    return [str(process.which("lxc-usernsexec")), *maps, "--"]


def copy(source: int, target: int, paths: Paths) -> None:
    """A full copy of a stopped container's tree."""
    forget(target, paths)
    trees = (paths.containers / str(vmid) for vmid in (source, target))
    process.run(["cp", "-a", "--reflink=auto", *trees], timeout_s=600)


def forget(vmid: int, paths: Paths) -> None:
    """Remove a container's folders."""
    own = paths.containers / str(vmid)
    if own.exists():
        shutil.rmtree(own)


def layers(vmid: int, paths: Paths) -> tuple[Path, Path, Path]:
    """What an overlay is made of: the template's tree, the container's own, the folder to work in."""
    own = paths.containers / str(vmid)
    try:
        lower = paths.templates / (own / "template").read_text()
    except FileNotFoundError:
        raise MachineError(f"the files of CT {vmid} are gone from {own}") from None
    if not lower.is_dir():
        raise MachineError(f"the template of CT {vmid} is gone from {lower}")
    return lower, own / "upper", own / "work"


def sweep(paths: Paths, exists: Callable[[int], bool], archives: list[Path]) -> None:
    """Remove the folders of containers that are no more, and templates that nobody uses or can use again."""
    for own in list(paths.containers.glob("[1-9]*")):
        if own.name.isdigit() and not exists(int(own.name)):
            shutil.rmtree(own, ignore_errors=True)
    trees = list(paths.templates.glob("*-*"))
    used = {file.read_text() for file in paths.containers.glob("*/template")}
    if unused := [tree for tree in trees if tree.name not in used]:
        known = {digest(archive) for archive in archives}
        for tree in unused:
            if tree.name.partition("-")[0] not in known:
                shutil.rmtree(tree, ignore_errors=True)


def used_bytes(vmid: int, paths: Paths) -> int:
    """What a container's own files take, or took half a minute ago."""
    own = paths.containers / str(vmid) / "upper"
    counted, found = _counted.get(own, (-_COUNT_S, 0))
    if time.monotonic() - counted > _COUNT_S:
        found = sum(
            os.lstat(f"{folder}/{name}").st_blocks * 512
            for folder, _, files in os.walk(own)
            for name in files
        )
        _counted[own] = (time.monotonic(), found)
    return found
