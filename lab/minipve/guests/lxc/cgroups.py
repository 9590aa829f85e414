"""The control groups of containers, version 1 or 2: limits, usage, removal.

Each instance of minipve has a folder of its own in every hierarchy. LXC creates and removes the groups in
it; groups that a killed LXC left are removed here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from minipve.base import host
from minipve.base.paths import Paths
from minipve.config import values

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
