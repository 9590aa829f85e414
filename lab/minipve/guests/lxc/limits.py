"""What a container may use: control groups, user IDs, and whether this host can run any."""

from __future__ import annotations

import hashlib
import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from minipve.base import host, process
from minipve.base.atomic import write_atomic
from minipve.base.errors import MachineError, UserError
from minipve.base.paths import Paths
from minipve.config import values

# Whether this host can run containers.


def require() -> None:
    """Raise UserError or MachineError, with what helps, if this host cannot run containers."""
    require_root()
    process.require_tools("lxc-start", "lxc-usernsexec", "nsenter", "tar")
    if not any(ROOT.glob("*")):
        raise MachineError("containers need control groups: mount -t cgroup2 none /sys/fs/cgroup")


def problem() -> str:
    """Return why this host cannot run unprivileged containers and what helps; "" if it can."""
    try:
        require()
        require_namespaces()
    except (UserError, MachineError) as error:
        return str(error)
    return ""


# The control groups of containers, version 1 or 2: limits, usage, removal.
#
# Each instance of minipve has a folder of its own in every hierarchy. LXC creates and removes the groups in
# it; groups that a killed LXC left are removed here.

ROOT = Path("/sys/fs/cgroup")
_MAX_PROCESSES = 4096  # including threads; an eighth of Linux's default maximum of process IDs
_PERIOD_US = 20_000  # a container that has used up its time waits for the next period
_DEFAULT_SHARES = {1: 1024, 2: 100}


def version() -> int:
    """Return the version of control groups on this host: 1 or 2."""
    return 2 if (ROOT / "cgroup.controllers").exists() else 1


def folder(paths: Paths) -> str:
    """Return the name of the instance's folder in each hierarchy (pure)."""
    return f"minipve-{hashlib.sha256(str(paths.state).encode()).hexdigest()[:8]}"


def lxc_lines(vmid: int, paths: Paths) -> list[str]:
    """Return the lines of LXC's configuration that name the groups (pure)."""
    own = f"{folder(paths)}/{vmid}"
    return [
        f"lxc.cgroup.dir.container = {own}",
        "lxc.cgroup.dir.container.inner = ns",
        f"lxc.cgroup.dir.monitor = {own}.monitor",
        f"lxc.cgroup.dir.monitor.pivot = {folder(paths)}/pivot",
    ]


def limits(options: Mapping[str, str], cgroup_version: int) -> dict[str, str]:
    """Return the limits of a container as file name -> value.

    ``cores`` limits the processor time, on any processors, as for a virtual machine. A Proxmox VE node
    binds a container to fixed processors instead. With more containers than processors, that would leave
    some processors idle while several containers wait for the same one.
    """
    memory, swap = (size * 2**20 for size in values.container_memory_mib(options))
    quota = _quota_us(options)
    shares = max(int(options.get("cpuunits", _DEFAULT_SHARES[cgroup_version])), 2)
    if cgroup_version == 1:
        files = {
            "memory.limit_in_bytes": str(memory),
            "memory.memsw.limit_in_bytes": str(memory + swap),
            "cpu.cfs_period_us": str(_PERIOD_US),
            "cpu.cfs_quota_us": str(quota or -1),
            "cpu.shares": str(shares),
        }
    else:
        files = {
            "memory.max": str(memory),
            "memory.swap.max": str(swap),
            "cpu.max": f"{quota or 'max'} {_PERIOD_US}",
            "cpu.weight": str(min(shares, 10_000)),
        }
    return files | {"pids.max": str(_MAX_PROCESSES)}


def _quota_us(options: Mapping[str, str]) -> int:
    """Return the processor time (us) in each period; 0 if no option limits it below the host's."""
    requested = (float(options.get(name, "0")) for name in ("cpulimit", "cores"))
    cores = min((limit for limit in requested if 0 < limit < host.cpus()), default=0)
    return int(cores * _PERIOD_US)


def apply(vmid: int, paths: Paths, new_limits: Mapping[str, str]) -> None:
    """Set the limits of a running container. Limits that this kernel does not have are skipped.

    The limits are written twice. The memory limit must not exceed the limit of memory plus swap, so the
    kernel may reject the first write of one of them, depending on the direction of the change.
    """
    for is_last in (False, True):
        for name, value in new_limits.items():
            for file in _limit_files(vmid, paths, name):
                try:
                    file.write_text(value)
                except OSError:
                    if is_last:
                        raise


def used_memory(vmid: int, paths: Paths) -> int:
    """Return the bytes in use without the inactive page cache; 0 if there is no memory controller."""
    usage = _file(vmid, paths, "memory.current") or _file(vmid, paths, "memory.usage_in_bytes")
    statistics = _file(vmid, paths, "memory.stat")
    if usage is None or statistics is None:
        return 0
    with suppress(OSError):
        rows = dict(line.split() for line in statistics.read_text().splitlines())
        cached = int(rows.get("total_inactive_file", rows.get("inactive_file", "0")))
        return max(int(usage.read_text()) - cached, 0)
    return 0


def used_cpu_s(vmid: int, paths: Paths) -> float:
    """Return the processor time (s) used since the start; 0 if there is no controller that counts it."""
    with suppress(OSError):
        if file := _file(vmid, paths, "cpuacct.usage"):
            return int(file.read_text()) / 1e9
        if file := _file(vmid, paths, "cpu.stat"):
            return int(dict(line.split() for line in file.read_text().splitlines())["usage_usec"]) / 1e6
    return 0.0


def exist(paths: Paths, vmid: int | None = None) -> bool:
    """Return whether a container (without a VMID: any of the instance) has groups, so may be running."""
    name = str(vmid or "")
    return any((hierarchy / folder(paths) / name).exists() for hierarchy in _hierarchies())


def remove(paths: Paths, vmid: int | None = None) -> None:
    """Remove the groups of a container (without a VMID: of the instance) that have no processes."""
    names = [str(vmid), f"{vmid}.monitor"] if vmid else [""]
    for hierarchy in _hierarchies():
        for name in names:
            _remove_below(hierarchy / folder(paths) / name)


def _remove_below(group: Path) -> None:
    for inner in reversed(list(_groups(group))):
        with suppress(OSError):  # it does not exist in this hierarchy, or it has processes
            inner.rmdir()


def _groups(top: Path) -> Iterator[Path]:
    """Yield a group and those below it, parents first. A guest may nest them deeper than recursion goes."""
    groups = [top]
    while groups:
        yield (group := groups.pop())
        with suppress(OSError):  # the group may disappear meanwhile
            groups += [entry for entry in group.iterdir() if entry.is_dir()]


def processes(vmid: int, paths: Paths) -> set[int]:
    """Return every process in a container's groups."""
    pids = set()
    for hierarchy in _hierarchies():
        for group in _groups(hierarchy / folder(paths) / str(vmid)):
            with suppress(OSError):  # the group may disappear meanwhile
                pids |= {int(pid) for pid in Path(group, "cgroup.procs").read_text().split()}
    return pids


def _hierarchies() -> Iterator[Path]:
    if version() == 2:
        yield ROOT
    elif ROOT.is_dir():
        yield from (entry for entry in ROOT.iterdir() if entry.is_dir() and not entry.is_symlink())


def _limit_files(vmid: int, paths: Paths, name: str) -> list[Path]:
    """Return the files of a limit: in the container's group, and in the inner group that it sees itself."""
    outer = _file(vmid, paths, name)
    return [file for file in (outer, outer.parent / "ns" / name) if file.exists()] if outer else []


def _file(vmid: int, paths: Paths, name: str) -> Path | None:
    """Return a file of the container's group, or None if it does not exist."""
    controller = name.partition(".")[0]
    base = ROOT if version() == 2 else ROOT / controller
    file = base / folder(paths) / str(vmid) / name
    return file if file.exists() else None


# The user IDs of unprivileged containers.
#
# An instance of minipve chooses a range of the host's user IDs at its first container and stores it.

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
