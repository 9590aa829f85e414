"""Run code with a container's root file system as the root directory.

The files are not trusted: a link in them may point anywhere. With the file system as the root
directory no path leads out of it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TypeVar

from minipve.base.paths import Paths
from minipve.base.process import MachineError
from minipve.guests.lxc import mounts

T = TypeVar("T")
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

    return mounts.with_own_mounts(run)


def within_running(init_pid: int, work: Callable[[], None]) -> None:
    """Run ``work`` with the file system of a running container as the root directory."""
    mounts.with_own_mounts(lambda: at(Path(f"/proc/{init_pid}/root"), work))


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
    mounts.empty_folder(LXC_RUN)
    MOUNT_POINT.mkdir()
    mounts.overlay(*folders, MOUNT_POINT)


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
