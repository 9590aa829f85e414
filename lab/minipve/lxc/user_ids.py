"""The user ids that unprivileged containers run as, chosen once for an instance and then written down."""

from __future__ import annotations

import os
from pathlib import Path

from minipve.atomic import write_atomic
from minipve.lxc.rootfs import IDS
from minipve.paths import Paths
from minipve.user_error import UserError

_RANGES = (Path("/etc/subuid"), Path("/etc/subgid"))
_FIRST = 100_000  # as on a Proxmox VE node
_MOST = Path("/proc/sys/user/max_user_namespaces")


def first(paths: Paths) -> int:
    """The first of the ids; the files of the instance's containers belong to them, so they never change."""
    file = paths.state / "etc" / "first-id"
    if not file.exists():
        write_atomic(file, f"{choose(*(read(ranges) for ranges in _RANGES))}\n")
    return int(file.read_text())


def choose(*given: list[tuple[str, int, int]]) -> int:
    """root's own range where every list has it, else one that nobody was given (pure)."""
    owned = [
        {start for name, start, count in rows if name in ("root", "0") and count >= IDS} for rows in given
    ]
    if both := set.intersection(*owned):
        return min(both)
    taken = sorted((start, start + count) for rows in given for _, start, count in rows)
    start = _FIRST
    for low, high in taken:
        if low < start + IDS and high > start:
            start = high
    return start


def read(file: Path) -> list[tuple[str, int, int]]:
    """(user, first id, how many) of each line of /etc/subuid or /etc/subgid."""
    try:
        rows = (line.split(":") for line in file.read_text().splitlines())
    except OSError:
        return []
    return [
        (row[0], int(row[1]), int(row[2])) for row in rows if len(row) == 3 and (row[1] + row[2]).isdigit()
    ]


def require() -> None:
    """Refuse, with the line that mends it, where the kernel gives no user namespaces."""
    if not Path("/proc/self/ns/user").exists():
        raise UserError(
            "unprivileged containers need user namespaces, which this kernel has not: unprivileged=0"
        )
    if _MOST.exists() and _MOST.read_text().strip() == "0":
        raise UserError(
            "unprivileged containers need user namespaces, which are switched off here: "
            "sysctl -w user.max_user_namespaces=10000, or ask for unprivileged=0"
        )


def require_root() -> None:
    """Refuse where the endpoint is not the machine's root: it cannot mount, nor own others' files."""
    if os.geteuid() != 0 or Path("/proc/self/uid_map").read_text().split()[2] == "1":
        raise UserError("containers need an endpoint that was started as root: sudo minipve serve")
