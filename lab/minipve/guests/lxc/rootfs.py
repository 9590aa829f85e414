"""The root file system of a container: an overlay of its own files over an unpacked template.

On a Proxmox VE node a container has a disk image, filled from the template's archive. Here it has two
folders below `containers/VMID`, which are mounted over the unpacked archive in the mount namespace of
whoever needs them. An archive is unpacked once for all containers, into a folder named by the digest of its
content, and may be deleted afterwards. For unprivileged containers the owners of the files are shifted to
the user IDs that they run as. The golden image's template also stays unpacked in the cache; later instances
hard-link its files.

Everybody with the right to upload may provide an archive. Tar refuses members outside of the target folder,
and runs with the user IDs of an unprivileged container if possible. What it unpacks is no larger than the
root file system that the caller requests. Device nodes cannot be opened in the overlay. Other users of the
host cannot enter the folders, so they can use neither device nodes nor set-user-id programs. Folders may be
nested deeper than Python's recursion goes (`shutil.rmtree`, `os.walk`, ``**``), by the archive or the guest.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from minipve.base import process
from minipve.base.atomic import UNFINISHED, flocked
from minipve.base.paths import Paths
from minipve.base.process import MachineError
from minipve.config.volume_ids import size_text
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
_UNPACK_TIMEOUT_S = 600.0
_UNPACK_MEMORY_BYTES = 2**30  # of tar and of the decompressor: an archive chooses how much they ask for
_BLOCK_BYTES = 2**20
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


def create(vmid: int, archive: Path, first_id: int, max_bytes: int, paths: Paths) -> None:
    """Create a container's folders, and unpack its template if necessary.

    The file that names the template is written first; from then on `sweep` keeps that template.

    Args:
        vmid: the container.
        archive: the template.
        first_id: the user ID of the container's root on the host; 0 for a privileged container.
        max_bytes: the size of the root file system; a larger template is not unpacked.
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
            _provide_template(paths.templates / name, archive, first_id, max_bytes, paths)


def _provide_template(target: Path, archive: Path, first_id: int, max_bytes: int, paths: Paths) -> None:
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
            _unpack(archive, first_id, draft, max_bytes)


def _unpacked_golden_template(archive: Path, first_id: int) -> Path:
    """Return the folder in the cache with the golden image's template, unpacked if necessary."""
    unpacked = archive.parent / "trees" / str(first_id)
    unpacked.parent.mkdir(exist_ok=True, mode=0o700)
    with flocked(unpacked.parent / ".lock", _CACHE_LOCK_TIMEOUT_S):
        for leftover in unpacked.parent.glob(f"{UNFINISHED}*"):  # of an instance that was killed
            process.remove_tree(leftover)
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
        with suppress(MachineError):
            process.remove_tree(draft)
        raise


def _unpack(archive: Path, first_id: int, target: Path, max_bytes: float = math.inf) -> None:
    target.chmod(0o755)
    os.chown(target, first_id, first_id)
    _run_tar(archive, first_id, target, max_bytes)
    folders = (target / name for name in ("etc", "bin", "usr"))
    if not any(folder.is_dir() and not folder.is_symlink() for folder in folders):
        raise MachineError("unable to detect OS distribution")


def _run_tar(archive: Path, first_id: int, target: Path, max_bytes: float) -> None:
    """Unpack into ``target``, the working directory of tar: its user IDs could not reach that by a path."""
    decompressor = _DECOMPRESSORS.get(archive.suffix)
    process.require_tools("prlimit", "tar", *filter(None, [decompressor]))
    limited = [str(process.which("prlimit")), f"--as={_UNPACK_MEMORY_BYTES}", "--"]
    read = [*limited, str(process.which(decompressor or "cat")), *(["-dc"] if decompressor else [])]
    unpack = [*limited, *user_ids.words_before(first_id), str(process.which("tar")), "-x", "-f", "-"]
    unpack += [*_TAR_OPTIONS, "--anchored", "--exclude=./dev/*"]
    with archive.open("rb") as stream, tempfile.TemporaryFile() as messages:

        def start(words: list[str], stdin: IO[bytes] | int, stdout: int | None) -> subprocess.Popen[bytes]:
            environment = {"LC_ALL": "C"}
            return subprocess.Popen(
                words, 0, stdin=stdin, stdout=stdout, stderr=messages, cwd=target, env=environment
            )

        with start(read, stream, subprocess.PIPE) as source, start(unpack, subprocess.PIPE, None) as tar:
            assert source.stdout and tar.stdin
            try:
                _pump(source.stdout, tar.stdin, target, max_bytes)
            except BaseException:
                source.kill()
                tar.kill()
                raise
        messages.seek(0)
        lines = messages.read(_BLOCK_BYTES).decode(errors="replace").strip().splitlines() or ["no message"]
    if code := tar.returncode or max(source.returncode, 0):  # below 0: tar did not read it to the end
        cause = next((line for line in lines if os.strerror(errno.ENOSPC) in line), lines[0])
        raise MachineError(f"command 'tar' failed: exit code {code} ({cause})")


def _pump(source: IO[bytes], tar: IO[bytes], target: Path, max_bytes: float) -> None:
    """Copy an archive to tar until its end.

    Raises:
        MachineError: it is larger than ``max_bytes``, or would fill the disk.
    """
    deadline, left = time.monotonic() + _UNPACK_TIMEOUT_S, max_bytes
    while block := source.read(_BLOCK_BYTES):
        left -= len(block)
        if left < 0:
            text = f"the template does not fit into the root file system of {size_text(int(max_bytes))}"
            raise MachineError(text)
        disk = os.statvfs(target)  # some have no limit of inodes
        if disk.f_bavail * 100 < disk.f_blocks or disk.f_favail * 100 < disk.f_files:
            raise MachineError(f"{os.strerror(errno.ENOSPC)}: {target.parent} (one percent is kept free)")
        if time.monotonic() > deadline:
            raise MachineError(f"the template was not unpacked within {_UNPACK_TIMEOUT_S:.0f} s")
        rest = memoryview(block)
        try:
            while rest:
                rest = rest[tar.write(rest) :]
        except BrokenPipeError:  # tar has ended, and says why
            return


def copy(source: int, target: int, paths: Paths) -> None:
    """Copy a stopped container's folders."""
    remove(target, paths)
    folders = (paths.containers / str(vmid) for vmid in (source, target))
    process.run(["cp", "-a", "--reflink=auto", *folders], timeout_s=600)


def remove(vmid: int, paths: Paths) -> None:
    own = paths.containers / str(vmid)
    if own.exists():
        process.remove_tree(own)


def sweep(paths: Paths, exists: Callable[[int], bool], archives: list[Path]) -> None:
    """Remove the folders of containers that do not exist any more, and templates that are not needed.

    Args:
        paths: the node's paths.
        exists: whether a container exists.
        archives: the templates in the storage; their unpacked files stay for later containers.
    """
    for own in list(paths.containers.glob("[1-9]*")):
        if own.name.isdigit() and not exists(int(own.name)):
            with suppress(MachineError):
                process.remove_tree(own)
    used = {file.read_text() for file in paths.containers.glob("*/template")}
    if unused := [folder for folder in paths.templates.glob("*-*") if folder.name not in used]:
        available = {digest(archive) for archive in archives}
        for folder in unused:
            if folder.name.partition("-")[0] not in available:
                with suppress(MachineError):
                    process.remove_tree(folder)


def used_bytes(vmid: int, paths: Paths) -> int:
    """Return the disk space of a container's own files. The value may be half a minute old."""
    own = paths.containers / str(vmid) / "upper"
    measured_s, size = _usage.get(own, (-_USAGE_MAX_AGE_S, 0))
    if time.monotonic() - measured_s > _USAGE_MAX_AGE_S:
        size, folders = 0, [str(own)]
        while folders:
            with suppress(OSError), os.scandir(folders.pop()) as entries:  # the guest may remove anything
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
        _usage[own] = (time.monotonic(), size)
    return size
