"""Mount file systems for one thread only, so that no mount is visible elsewhere or left behind.

Two mounts are needed. LXC looks for bridges in /sys, which shows the network namespace in which it was
mounted. And a container's file system is an overlay. Both are mounted in a thread with a mount namespace of
its own. Programs that the thread starts inherit the namespace; the kernel removes it with the last of them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

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
