"""What runs, told by /proc and not by memory: LXC's monitor is a daemon that outlives the endpoint.

The monitor of a container is known by its command line; the container's first process is its only child.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from minipve import cpu_usage, process
from minipve.config import container_nics
from minipve.lxc import cgroups
from minipve.network import links, rate
from minipve.paths import Paths

LXC = Path("/run/lxc")
log = logging.getLogger(__name__)
locks: defaultdict[tuple[Path, int], threading.RLock] = defaultdict(threading.RLock)
"""One for each container, held while it is started, stopped or cleaned up after."""
_booted: dict[tuple[Path, int], int] = {}


@dataclass(frozen=True)
class ContainerState:
    """What can be seen of a container; ``nics`` as of a machine, by the host's end."""

    status: str
    pid: int | None = None
    uptime_s: int = 0
    cpu: float = 0.0
    mem_bytes: int = 0
    nics: dict[str, dict[str, int]] = field(default_factory=dict)


def lxc_folder(paths: Paths) -> Path:
    """The folder that LXC has of the instance's containers, each in a mount namespace of its own."""
    return LXC / cgroups.folder(paths)


def monitor_pid(vmid: int, paths: Paths) -> int | None:
    """LXC's process of a container, None when it does not run."""
    file = paths.runtime(vmid, "monitor")
    try:
        pid = int(file.read_text())
    except FileNotFoundError:
        return find_all(paths).get(vmid) if cgroups.exist(paths, vmid) else None
    except ValueError:
        pid = 0
    if _vmid_of(process.command(pid), paths) == vmid and _is_ours(pid):
        return pid
    return find_all(paths).get(vmid)


def find_all(paths: Paths) -> dict[int, int]:
    """VMID -> LXC's process of all containers of the instance, from the processes' own command lines."""
    found: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        vmid = _vmid_of(process.command(int(entry.name)), paths) if entry.name.isdigit() else None
        began = process.start_time(int(entry.name)) if vmid and _is_ours(int(entry.name)) else None
        if vmid and began is not None:
            found[vmid] = max(found.get(vmid, (0, 0)), (began, int(entry.name)))
    return {vmid: pid for vmid, (_, pid) in sorted(found.items())}


def _vmid_of(words: list[str], paths: Paths) -> int | None:
    """Whose monitor it is: ``[lxc monitor] FOLDER VMID``, or still ``lxc-start .. -P FOLDER -n VMID``."""
    if len(words) == 1 and words[0].startswith("[lxc monitor] "):
        folder, _, name = words[0].removeprefix("[lxc monitor] ").rpartition(" ")
    elif len(words) > 6 and words[0].endswith("lxc-start"):
        folder, name = words[4], words[6]
    else:
        return None
    return int(name) if folder == str(lxc_folder(paths)) and name.isdigit() else None


def _is_ours(pid: int) -> bool:
    """Whether a process lives, and is no other user's and no container's, who may call it what they like."""
    try:
        same = Path(f"/proc/{pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
        owner = Path(f"/proc/{pid}").stat().st_uid
        return same and owner == os.geteuid() and process.start_time(pid) is not None
    except OSError:
        return False


def init_pid(vmid: int, paths: Paths) -> int | None:
    """The container's first process, None when it does not run."""
    monitor = monitor_pid(vmid, paths)
    return None if monitor is None else next(iter(process.children(monitor)), None)


def all_pids(vmid: int, paths: Paths) -> set[int]:
    """Every process of a container, its monitor included; each is alive."""
    monitor = monitor_pid(vmid, paths)
    if monitor is not None and (children := process.children(monitor)):
        return set(children)  # all others, the monitor too, end with the first process
    found = cgroups.processes(vmid, paths) | ({monitor} if monitor else set())
    return {pid for pid in found if process.start_time(pid) is not None}


def remember(vmid: int, paths: Paths) -> None:
    """Note a container's first process, to notice when it has been rebooted from inside."""
    if (pid := init_pid(vmid, paths)) is not None:
        _booted[paths.run, vmid] = pid


def reap(vmid: int, options: Mapping[str, str], paths: Paths) -> None:
    """See what happened by itself: remove what an ended container left, set the rates of a rebooted one."""
    if not (lock := locks[paths.run, vmid]).acquire(blocking=False):
        return
    try:
        pid = init_pid(vmid, paths)
        if pid is None and _has_left(vmid, paths) and monitor_pid(vmid, paths) is None:
            log.info("CT %d: ended by itself", vmid)
            clean(vmid, paths)
        elif pid is not None and _booted.setdefault((paths.run, vmid), pid) != pid:
            log.info("CT %d: rebooted from inside", vmid)
            _booted[paths.run, vmid] = pid
            for index, nic in container_nics.of_config(options).items():
                rate.set_rate(container_nics.host_name(vmid, index), nic.rate_bytes)
    finally:
        lock.release()


def _has_left(vmid: int, paths: Paths) -> bool:
    """Whether there is something to clean up; LXC itself removes the monitor's file when it ends in order."""
    here = paths.runtime(vmid, "monitor").exists() or cgroups.exist(paths, vmid)
    return here or bool(links.container_links(vmid))


def clean(vmid: int, paths: Paths) -> None:
    """Remove what a container needed while it ran: NICs with their ifbs, control groups, LXC's files."""
    links.unplug(links.container_links(vmid))
    cgroups.remove(paths, vmid)
    paths.runtime(vmid, "monitor").unlink(missing_ok=True)
    _booted.pop((paths.run, vmid), None)


def running(paths: Paths) -> set[int]:
    """The containers that run, or did until a moment ago."""
    return {int(file.stem) for file in paths.run.glob("*.monitor")}


def state(vmid: int, paths: Paths) -> ContainerState:
    """What can be seen of a container now."""
    pid = init_pid(vmid, paths)
    uptime_s = None if pid is None else process.age_s(pid)
    if pid is None or uptime_s is None:
        return ContainerState("stopped")
    traffic = links.counters(f"veth{vmid}i")
    return ContainerState(
        status="running",
        pid=pid,
        uptime_s=int(uptime_s),
        cpu=cpu_usage.processors((paths.run, vmid), pid, uptime_s, cgroups.used_cpu_s(vmid, paths)),
        mem_bytes=cgroups.used_memory(vmid, paths),
        nics={name: {"netin": to_guest, "netout": out} for name, (to_guest, out) in traffic.items()},
    )
