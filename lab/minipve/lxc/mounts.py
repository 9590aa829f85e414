"""A mount namespace for one thread: what is mounted there nobody else sees, and nobody leaves behind.

LXC looks for bridges in /sys, which shows those of the network namespace that it was mounted in, and a
container's tree is an overlay that must be mounted to be looked into. Both happen in a thread that has taken
a mount namespace of its own; the programs that it starts inherit that, and it vanishes with the last of them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_NEW_NAMESPACE, _OWN_DIRECTORIES = 0x00020000, 0x00000200
_NODEV, _BIND, _RECURSIVE, _PRIVATE = 4, 4096, 16384, 1 << 18
_CGROUPS = "/sys/fs/cgroup"
_libc = ctypes.CDLL(None, use_errno=True)


def apart(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread with mounts, root and working directory of its own, to its result."""

    def run() -> T:
        _called(_libc.unshare(_NEW_NAMESPACE | _OWN_DIRECTORIES), "unshare")
        _mount("none", "/", "", _RECURSIVE | _PRIVATE)
        return work()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="apart") as own:
        return own.submit(run).result()


def fresh_sys() -> None:
    """A /sys of the present network namespace, with the host's control groups again below it."""
    handle = os.open(_CGROUPS, os.O_PATH)
    try:
        _mount("sysfs", "/sys", "sysfs")
        _mount(f"/proc/thread-self/fd/{handle}", _CGROUPS, "", _BIND | _RECURSIVE)
    finally:
        os.close(handle)


def bare_folder(target: Path) -> None:
    """An empty folder in the place of ``target``, which every user id can reach."""
    target.mkdir(exist_ok=True)
    _mount("tmpfs", str(target), "tmpfs", _NODEV, "mode=755")


def overlay(lower: Path, upper: Path, work: Path, target: Path) -> None:
    """Mount ``upper`` over ``lower``; device nodes in either are dead."""
    named = {"lowerdir": lower, "upperdir": upper, "workdir": work}
    options = ",".join(f"{name}={_escaped(path)}" for name, path in named.items())
    _mount("overlay", str(target), "overlay", _NODEV, f"{options},index=off")


def _escaped(path: Path) -> str:
    return "".join(f"\\{letter}" if letter in "\\,:" else letter for letter in str(path))


def _mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    words = (os.fsencode(word) for word in (source, target, kind))
    _called(
        _libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)),
        f"mount {kind or source} at {target}",
    )


def _called(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
