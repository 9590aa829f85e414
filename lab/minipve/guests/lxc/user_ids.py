"""The user IDs of unprivileged containers.

An instance of minipve chooses a range of the host's user IDs at its first container and stores it.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from minipve.base import process
from minipve.base.atomic import write_atomic
from minipve.base.paths import Paths
from minipve.base.user_error import UserError

COUNT = 65536
_ALLOCATIONS = (Path("/etc/subuid"), Path("/etc/subgid"))
_DEFAULT_FIRST = 100_000  # as on a Proxmox VE node
_MAX_NAMESPACES = Path("/proc/sys/user/max_user_namespaces")


def first(paths: Paths) -> int:
    """Return the first ID of the instance's range. It never changes, since files belong to it."""
    file = paths.state / "etc" / "first-id"
    if not file.exists():
        write_atomic(file, f"{choose(*(read(allocations) for allocations in _ALLOCATIONS))}\n")
    return int(file.read_text())


def of_root(options: Mapping[str, str], paths: Paths) -> int:
    """Return the host's user ID of a container's root: 0 for a privileged container."""
    return first(paths) if options.get("unprivileged") == "1" else 0


def words_before(first_id: int) -> list[str]:
    """Return the words before a command that run it as root of an unprivileged container.

    There are none for ``first_id`` 0. Callers run the command without a PATH: then lxc-usernsexec maps the
    IDs itself, as root may. With a PATH it would use the programs of package uidmap, which require an entry
    in /etc/subuid.
    """
    if not first_id:
        return []
    maps = [word for kind in "ug" for word in ("-m", f"{kind}:0:{first_id}:{COUNT}")]
    return [str(process.which("lxc-usernsexec")), *maps, "--"]


def choose(*files: list[tuple[str, int, int]]) -> int:
    """Return the first ID of a range for containers (pure).

    It is root's own range if every file has one, else a range that no file allocates.

    Args:
        files: the rows of /etc/subuid and of /etc/subgid: user, first ID, number of IDs.
    """
    root_ranges = [
        {start for name, start, count in rows if name in ("root", "0") and count >= COUNT} for rows in files
    ]
    if in_all_files := set.intersection(*root_ranges):
        return min(in_all_files)
    allocated = sorted((start, start + count) for rows in files for _, start, count in rows)
    start = _DEFAULT_FIRST
    for low, high in allocated:
        if low < start + COUNT and high > start:
            start = high
    return start


def read(file: Path) -> list[tuple[str, int, int]]:
    """Return the rows of /etc/subuid or /etc/subgid: user, first ID, number of IDs."""
    try:
        rows = (line.split(":") for line in file.read_text().splitlines())
    except OSError:
        return []
    return [
        (row[0], int(row[1]), int(row[2])) for row in rows if len(row) == 3 and (row[1] + row[2]).isdigit()
    ]


def require_own_range() -> None:
    """Raise UserError, with what helps, if an ordinary user has no range of IDs to build an image with."""
    if os.geteuid() == 0:
        return
    user = pwd.getpwuid(os.geteuid()).pw_name
    allocations = {file: read(file) for file in _ALLOCATIONS}
    lacking = [str(file) for file, rows in allocations.items() if not _has_range(rows, user)]
    if lacking:
        start = choose(
            *([row for row in rows if row[0] not in ("root", "0")] for rows in allocations.values())
        )
        last = start + COUNT - 1
        files = " and ".join(lacking)
        raise UserError(
            f"building the guests' image needs {COUNT} user IDs, and {user} has none in {files}",
            f"sudo usermod --add-subuids {start}-{last} --add-subgids {start}-{last} {user}",
        )


def _has_range(rows: list[tuple[str, int, int]], user: str) -> bool:
    return any(name in (user, str(os.geteuid())) and count >= COUNT for name, _, count in rows)


def require_namespaces() -> None:
    """Raise UserError, with what helps, if user namespaces are not available."""
    if not Path("/proc/self/ns/user").exists():
        raise UserError(
            "unprivileged containers need user namespaces, which this kernel lacks: use unprivileged=0"
        )
    if _MAX_NAMESPACES.exists() and _MAX_NAMESPACES.read_text().strip() == "0":
        raise UserError(
            "unprivileged containers need user namespaces, which are switched off on this host: "
            "sysctl -w user.max_user_namespaces=10000, or use unprivileged=0"
        )


def require_root() -> None:
    """Raise UserError unless the endpoint is root of the host: only root can mount and change owners."""
    if os.geteuid() != 0 or Path("/proc/self/uid_map").read_text().split()[2] == "1":
        raise UserError("containers need root: use sudo, or virtual machines")
