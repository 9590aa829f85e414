"""The root file system of a container: an overlay of its own files over an unpacked template.

On a Proxmox VE node a container has a disk image, filled from the template's archive. Here it has two
folders below `containers/VMID`, which are mounted over the unpacked archive in the mount namespace of
whoever needs them. An archive is unpacked once for all containers, into a folder named by the digest of its
content, and may be deleted afterwards. For unprivileged containers the owners of the files are shifted to
the user IDs that they run as. The golden image's template also stays unpacked in the cache; later instances
hard-link its files.

Everybody with the right to upload may provide an archive. Tar refuses members outside of the target folder,
and runs with the user IDs of an unprivileged container if possible. Device nodes cannot be opened in the
overlay. Other users of the host cannot enter the folders, so they can use neither device nodes nor
set-user-id programs.
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

from minipve.base import process
from minipve.base.atomic import UNFINISHED, flocked
from minipve.base.paths import Paths
from minipve.base.process import MachineError
from minipve.guests.lxc import user_ids
from minipve.image import golden

_DECOMPRESSORS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}
_TAR_OPTIONS = (
    "--numeric-owner",
    "--same-permissions",
    "--xattrs",
    "--xattrs-include=security.capability",
    "--sparse",
)
_CACHE_LOCK_TIMEOUT_S = 600.0  # another instance may be unpacking the golden image's template
_USAGE_MAX_AGE_S = 30.0
_unpack_locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
_usage: dict[Path, tuple[float, int]] = {}
_digests: dict[tuple[int, int, int], str] = {}


def digest(archive: Path) -> str:
    """Return the SHA-256 of a file. It is computed once per version of the file."""
    status = archive.stat()
    key = (status.st_ino, status.st_size, status.st_mtime_ns)
    if key not in _digests:
        with archive.open("rb") as stream:
            _digests[key] = hashlib.file_digest(stream, "sha256").hexdigest()
    return _digests[key]


def create(vmid: int, archive: Path, first_id: int, paths: Paths) -> None:
    """Create a container's folders, and unpack its template if necessary.

    The file that names the template is written first; from then on `sweep` keeps that template.

    Args:
        vmid: the container.
        archive: the template.
        first_id: the user ID of the container's root on the host; 0 for a privileged container.
        paths: its node's paths.
    """
    name = f"{digest(archive)}-{first_id}"
    own = paths.containers / str(vmid)
    paths.containers.mkdir(exist_ok=True, mode=0o700)
    remove(vmid, paths)
    for folder in ("upper", "work"):
        (own / folder).mkdir(parents=True)
    os.chown(own / "upper", first_id, first_id)
    (own / "template").write_text(name)
    with _unpack_locks[paths.templates / name]:
        if not (paths.templates / name).exists():
            _provide_template(paths.templates / name, archive, first_id, paths)


def _provide_template(target: Path, archive: Path, first_id: int, paths: Paths) -> None:
    """Unpack an archive to ``target``, or hard-link the files if it is the golden image's template."""
    golden_template = golden.template_path(paths)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    same_filesystem = golden_template.exists() and (
        golden_template.stat().st_dev == target.parent.stat().st_dev
    )
    if same_filesystem and _have_same_content(archive, golden_template):
        unpacked = _unpacked_golden_template(golden_template, first_id)
        with _appears_complete(target) as draft:
            process.run(["cp", "-al", f"{unpacked}/.", draft], timeout_s=600)
    else:
        with _appears_complete(target) as draft:
            _unpack(archive, first_id, draft)


def _unpacked_golden_template(archive: Path, first_id: int) -> Path:
    """Return the folder in the cache with the golden image's template, unpacked if necessary."""
    unpacked = archive.parent / "trees" / str(first_id)
    unpacked.parent.mkdir(exist_ok=True, mode=0o700)
    with flocked(unpacked.parent / ".lock", _CACHE_LOCK_TIMEOUT_S):
        for leftover in unpacked.parent.glob(f"{UNFINISHED}*"):  # of an instance that was killed
            shutil.rmtree(leftover)
        if not unpacked.exists():
            with _appears_complete(unpacked) as draft:
                _unpack(archive, first_id, draft)
    return unpacked


def _have_same_content(one_file: Path, other_file: Path) -> bool:
    same_size = one_file.stat().st_size == other_file.stat().st_size
    return same_size and digest(one_file) == digest(other_file)


@contextmanager
def _appears_complete(target: Path) -> Iterator[Path]:
    """Yield a draft folder that becomes ``target`` after the block, or is removed if the block fails."""
    draft = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=target.parent))
    try:
        yield draft
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _unpack(archive: Path, first_id: int, target: Path) -> None:
    target.chmod(0o755)
    os.chown(target, first_id, first_id)
    _run_tar(archive, first_id, target)
    if not any((target / name).is_dir() for name in ("etc", "bin", "usr")):
        raise MachineError("unable to detect OS distribution")


def _run_tar(archive: Path, first_id: int, target: Path) -> None:
    """Unpack into ``target``, the working directory of tar: its user IDs could not reach that by a path."""
    process.require_tools("tar", *filter(None, [_DECOMPRESSORS.get(archive.suffix)]))
    decompressor = _DECOMPRESSORS.get(archive.suffix)
    decompress = ["-I", str(process.which(decompressor))] if decompressor else []
    words = [str(process.which("tar")), "-x", *decompress, "-f", "-", *_TAR_OPTIONS]
    words += ["--anchored", "--exclude=./dev/*"]
    with archive.open("rb") as stream:
        result = subprocess.run(
            [*user_ids.words_before(first_id), *words],
            stdin=stream,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=target,
            env={"LC_ALL": "C"},
            timeout=600,
        )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["no message"]
        cause = next((line for line in lines if os.strerror(errno.ENOSPC) in line), lines[0])
        raise MachineError(f"command 'tar' failed: exit code {result.returncode} ({cause})")


def copy(source: int, target: int, paths: Paths) -> None:
    """Copy a stopped container's folders."""
    remove(target, paths)
    folders = (paths.containers / str(vmid) for vmid in (source, target))
    process.run(["cp", "-a", "--reflink=auto", *folders], timeout_s=600)


def remove(vmid: int, paths: Paths) -> None:
    own = paths.containers / str(vmid)
    if own.exists():
        shutil.rmtree(own)


def sweep(paths: Paths, exists: Callable[[int], bool], archives: list[Path]) -> None:
    """Remove the folders of containers that do not exist any more, and templates that are not needed.

    Args:
        paths: the node's paths.
        exists: whether a container exists.
        archives: the templates in the storage; their unpacked files stay for later containers.
    """
    for own in list(paths.containers.glob("[1-9]*")):
        if own.name.isdigit() and not exists(int(own.name)):
            shutil.rmtree(own, ignore_errors=True)
    used = {file.read_text() for file in paths.containers.glob("*/template")}
    if unused := [folder for folder in paths.templates.glob("*-*") if folder.name not in used]:
        available = {digest(archive) for archive in archives}
        for folder in unused:
            if folder.name.partition("-")[0] not in available:
                shutil.rmtree(folder, ignore_errors=True)


def used_bytes(vmid: int, paths: Paths) -> int:
    """Return the disk space of a container's own files. The value may be half a minute old."""
    own = paths.containers / str(vmid) / "upper"
    measured_s, size = _usage.get(own, (-_USAGE_MAX_AGE_S, 0))
    if time.monotonic() - measured_s > _USAGE_MAX_AGE_S:
        size = sum(
            os.lstat(f"{folder}/{name}").st_blocks * 512
            for folder, _, files in os.walk(own)
            for name in files
        )
        _usage[own] = (time.monotonic(), size)
    return size
