"""The root file system of a container: an overlay of its own files over an unpacked template."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import IO, TypeVar

from minipve.base import process
from minipve.base.atomic import UNFINISHED, flocked
from minipve.base.errors import MachineError
from minipve.base.paths import Paths
from minipve.config.drives import size_text
from minipve.guests.lxc import limits
from minipve.image import golden

# Mount file systems for one thread only, so that no mount is visible elsewhere or left behind.
#
# Two mounts are needed. LXC looks for bridges in /sys, which shows the network namespace in which it was
# mounted. And a container's file system is an overlay. Both are mounted in a thread with a mount namespace
# of
# its own. Programs that the thread starts inherit the namespace; the kernel removes it with the last of
# them.

T = TypeVar("T")
_CLONE_NEWNS, _CLONE_FS = 0x00020000, 0x00000200
_MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 4, 4096, 16384, 1 << 18
_CGROUPS = "/sys/fs/cgroup"
_libc = ctypes.CDLL(None, use_errno=True)


def with_own_mounts(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread with its own mounts, root and working directory, and return its result."""

    def run() -> T:
        _check(_libc.unshare(_CLONE_NEWNS | _CLONE_FS), "unshare")
        _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
        return work()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="own-mounts") as executor:
        return executor.submit(run).result()


def mount_sys() -> None:
    """Mount a /sys that shows the current network namespace, with the host's control groups in it."""
    handle = os.open(_CGROUPS, os.O_PATH)
    try:
        _mount("sysfs", "/sys", "sysfs")
        _mount(f"/proc/thread-self/fd/{handle}", _CGROUPS, "", _MS_BIND | _MS_REC)
    finally:
        os.close(handle)


def empty_folder(target: Path) -> None:
    """Mount an empty folder at ``target``, which every user ID can reach."""
    target.mkdir(exist_ok=True)
    _mount("tmpfs", str(target), "tmpfs", _MS_NODEV, "mode=755")


def overlay(lower: Path, upper: Path, work: Path, target: Path) -> None:
    """Mount ``upper`` over ``lower`` at ``target``. Device nodes in them cannot be opened."""
    folders = {"lowerdir": lower, "upperdir": upper, "workdir": work}
    options = ",".join(f"{name}={_escaped(path)}" for name, path in folders.items())
    _mount("overlay", str(target), "overlay", _MS_NODEV, f"{options},index=off")


def _escaped(path: Path) -> str:
    return "".join(f"\\{letter}" if letter in "\\,:" else letter for letter in str(path))


def _mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    words = (os.fsencode(word) for word in (source, target, kind))
    _check(
        _libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)),
        f"mount {kind or source} at {target}",
    )


def _check(result: int, action: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


# Run code with a container's root file system as the root directory.
#
# The files are not trusted: a link in them may point anywhere. With the file system as the root
# directory no path leads out of it.

LXC_RUN = Path("/run/lxc")
MOUNT_POINT = LXC_RUN / "root"


class _NoImports(MetaPathFinder):
    """Prevents imports by a thread inside a container's file system: they would run the container's code."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if getattr(_thread, "is_inside", False):
            raise ImportError(f"{fullname} cannot be imported inside a container's file system")


_thread = threading.local()
sys.meta_path.insert(0, _NoImports())


def within(vmid: int, paths: Paths, work: Callable[[], T]) -> T:
    """Run ``work`` with the file system of a stopped container as the root directory."""

    def run() -> T:
        mount(vmid, paths)
        return at(MOUNT_POINT, work)

    return with_own_mounts(run)


def within_running(init_pid: int, work: Callable[[], None]) -> None:
    """Run ``work`` with the file system of a running container as the root directory."""
    with_own_mounts(lambda: at(Path(f"/proc/{init_pid}/root"), work))


def layers(vmid: int, paths: Paths) -> tuple[Path, Path, Path]:
    """Return the folders of a container's overlay: lower (its template), upper (its own files), work.

    Raises:
        MachineError: one of them does not exist any more.
    """
    own = paths.containers / str(vmid)
    try:
        lower = paths.templates / (own / "template").read_text()
    except FileNotFoundError:
        raise MachineError(f"the files of CT {vmid} are missing from {own}") from None
    if not lower.is_dir():
        raise MachineError(f"the template of CT {vmid} is missing from {lower}")
    return lower, own / "upper", own / "work"


def mount(vmid: int, paths: Paths) -> None:
    """Mount a container's file system at ``MOUNT_POINT``, in the mount namespace of the calling thread.

    LXC's own folder becomes empty there, so that LXC leaves no files behind.
    """
    folders = layers(vmid, paths)
    empty_folder(LXC_RUN)
    MOUNT_POINT.mkdir()
    overlay(*folders, MOUNT_POINT)


def at(folder: Path, work: Callable[[], T]) -> T:
    """Run ``work`` with ``folder`` as the thread's root directory. Only inside `mounts.with_own_mounts`."""
    outside = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chroot(folder)
        os.chdir("/")
        _thread.is_inside = True
        return work()
    finally:
        _thread.is_inside = False
        os.fchdir(outside)
        os.chroot(".")
        os.close(outside)


# The root file system of a container: an overlay of its own files over an unpacked template.
#
# On a Proxmox VE node a container has a disk image, filled from the template's archive. Here it has two
# folders below `containers/VMID`, which are mounted over the unpacked archive in the mount namespace of
# whoever needs them. An archive is unpacked once for all containers, into a folder named by the digest of
# its
# content, and may be deleted afterwards. For unprivileged containers the owners of the files are shifted to
# the user IDs that they run as. The golden image's template also stays unpacked in the cache; later
# instances
# hard-link its files.
#
# Everybody with the right to upload may provide an archive. Tar refuses members outside of the target
# folder,
# and runs with the user IDs of an unprivileged container if possible. What it unpacks is no larger than the
# root file system that the caller requests. Device nodes cannot be opened in the overlay. Other users of
# the
# host cannot enter the folders, so they can use neither device nodes nor set-user-id programs. Folders may
# be
# nested deeper than Python's recursion goes (`shutil.rmtree`, `os.walk`, `**`), by the archive or the
# guest.

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
    unpack = [*limited, *limits.words_before(first_id), str(process.which("tar")), "-x", "-f", "-"]
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
