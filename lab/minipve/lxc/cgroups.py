"""A container's control groups: its limits, what it uses, and what LXC leaves of them. Versions 1 and 2.

Each instance has a folder of its own in every hierarchy, so that two of them never meet; LXC makes and
removes the groups in it, and what a killed one left is removed here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from minipve import host
from minipve.config import values
from minipve.paths import Paths

ROOT = Path("/sys/fs/cgroup")
_MAX_PROCESSES = 4096  # with threads; an eighth of what Linux has ids for by default
_PERIOD_US = 20_000  # who has used up its time waits for the rest of one
_DEFAULT_SHARES = {1: 1024, 2: 100}


def version() -> int:
    """2 where there is one hierarchy for everything, else 1."""
    return 2 if (ROOT / "cgroup.controllers").exists() else 1


def folder(paths: Paths) -> str:
    """The instance's folder in each hierarchy (pure)."""
    return f"minipve-{hashlib.sha256(str(paths.state).encode()).hexdigest()[:8]}"


def lines(vmid: int, paths: Paths) -> list[str]:
    """The lines of LXC's configuration that name the groups (pure)."""
    own = f"{folder(paths)}/{vmid}"
    return [
        f"lxc.cgroup.dir.container = {own}",
        "lxc.cgroup.dir.container.inner = ns",
        f"lxc.cgroup.dir.monitor = {own}.monitor",
        f"lxc.cgroup.dir.monitor.pivot = {folder(paths)}/pivot",
    ]


def limits(options: Mapping[str, str], level: int) -> dict[str, str]:
    """Files and their values, for a version of control groups (pure).

    ``cores`` are so much time on any processors, as a virtual machine's are. A node binds a container to
    processors of its own; where there are fewer than containers ask for, that would leave some idle while
    several containers wait for another.
    """
    memory, swap = (size * 2**20 for size in values.container_memory_mib(options))
    quota = _quota_us(options)
    shares = max(int(options.get("cpuunits", _DEFAULT_SHARES[level])), 2)
    if level == 1:
        found = {
            "memory.limit_in_bytes": str(memory),
            "memory.memsw.limit_in_bytes": str(memory + swap),
            "cpu.cfs_period_us": str(_PERIOD_US),
            "cpu.cfs_quota_us": str(quota or -1),
            "cpu.shares": str(shares),
        }
    else:
        found = {
            "memory.max": str(memory),
            "memory.swap.max": str(swap),
            "cpu.max": f"{quota or 'max'} {_PERIOD_US}",
            "cpu.weight": str(min(shares, 10_000)),
        }
    return found | {"pids.max": str(_MAX_PROCESSES)}


def _quota_us(options: Mapping[str, str]) -> int:
    """Processor time in each period; 0 where neither option keeps it below the host's."""
    asked = (float(options.get(name, "0")) for name in ("cpulimit", "cores"))
    cores = min((limit for limit in asked if 0 < limit < host.cpus()), default=0)
    return int(cores * _PERIOD_US)


def apply(vmid: int, paths: Paths, wanted: Mapping[str, str]) -> None:
    """Set the limits of a running container; a file that this kernel has not is passed over.

    It is done twice: memory must not go above memory with swap, so that, whichever way they change, one of
    two is refused at first.
    """
    for last in (False, True):
        for name, value in wanted.items():
            for file in _files(vmid, paths, name):
                try:
                    file.write_text(value)
                except OSError:
                    if last:
                        raise


def used_memory(vmid: int, paths: Paths) -> int:
    """Bytes in use, without what could be dropped of files' contents; 0 where nobody counts."""
    file = _file(vmid, paths, "memory.current") or _file(vmid, paths, "memory.usage_in_bytes")
    counted = _file(vmid, paths, "memory.stat")
    if file is None or counted is None:
        return 0
    with suppress(OSError):
        rows = dict(line.split() for line in counted.read_text().splitlines())
        cached = int(rows.get("total_inactive_file", rows.get("inactive_file", "0")))
        return max(int(file.read_text()) - cached, 0)
    return 0


def used_cpu_s(vmid: int, paths: Paths) -> float:
    """Seconds of processor time used since the start; 0 where nobody counts."""
    with suppress(OSError):
        if file := _file(vmid, paths, "cpuacct.usage"):
            return int(file.read_text()) / 1e9
        if file := _file(vmid, paths, "cpu.stat"):
            return int(dict(line.split() for line in file.read_text().splitlines())["usage_usec"]) / 1e6
    return 0.0


def exist(paths: Paths, vmid: int | None = None) -> bool:
    """Whether a container (or any of the instance) has groups, and so perhaps runs."""
    name = str(vmid or "")
    return any((hierarchy / folder(paths) / name).exists() for hierarchy in _hierarchies())


def remove(paths: Paths, vmid: int | None = None) -> None:
    """Remove the groups of a container (or of the whole instance) in which nothing runs any more."""
    names = [str(vmid), f"{vmid}.monitor"] if vmid else [""]
    for hierarchy in _hierarchies():
        for name in names:
            _remove_below(hierarchy / folder(paths) / name)


def _remove_below(group: Path) -> None:
    with suppress(OSError):  # another hierarchy has it, or somebody is still inside
        for inner in [entry for entry in group.iterdir() if entry.is_dir()]:
            _remove_below(inner)
        group.rmdir()


def processes(vmid: int, paths: Paths) -> set[int]:
    """Every process in a container's groups, whoever its parent is."""
    found = set()
    for hierarchy in _hierarchies():
        for group, _, _ in os.walk(hierarchy / folder(paths) / str(vmid)):  # which may vanish meanwhile
            with suppress(OSError):
                found |= {int(pid) for pid in Path(group, "cgroup.procs").read_text().split()}
    return found


def _hierarchies() -> Iterator[Path]:
    if version() == 2:
        yield ROOT
    elif ROOT.is_dir():
        yield from (entry for entry in ROOT.iterdir() if entry.is_dir() and not entry.is_symlink())


def _files(vmid: int, paths: Paths, name: str) -> list[Path]:
    """The files by which a limit is set: in the inner group too, which is what the container sees of it."""
    outer = _file(vmid, paths, name)
    return [file for file in (outer, outer.parent / "ns" / name) if file.exists()] if outer else []


def _file(vmid: int, paths: Paths, name: str) -> Path | None:
    """A file of the container's group, where this machine has it."""
    controller = name.partition(".")[0]
    base = ROOT if version() == 2 else ROOT / controller
    file = base / folder(paths) / str(vmid) / name
    return file if file.exists() else None
