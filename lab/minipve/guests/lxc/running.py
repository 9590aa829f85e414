"""Which containers run, from /proc rather than from memory: LXC's monitor outlives the endpoint.

A container's monitor is identified by its command line. The container's first process is the monitor's only
child.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from minipve.base import host, process
from minipve.base.paths import Paths
from minipve.config import container_nics
from minipve.guests.lxc import limits
from minipve.guests.lxc.rootfs import LXC_RUN
from minipve.network import guest_ports, links

log = logging.getLogger(__name__)
locks: defaultdict[tuple[Path, int], threading.RLock] = defaultdict(threading.RLock)
"""One lock per container, held while it is started, stopped or cleaned up."""
_init_pids: dict[tuple[Path, int], int] = {}
"""The first process of each container when it was last looked at: another one means that it was rebooted."""


@dataclass(frozen=True)
class ContainerState:
    """The state of a container; the fields are those of `minipve.guests.qemu.running.MachineState`."""

    status: str
    pid: int | None = None
    uptime_s: int = 0
    cpu: float = 0.0
    mem_bytes: int = 0
    nics: dict[str, dict[str, int]] = field(default_factory=dict)


def lxc_folder(paths: Paths) -> Path:
    """Return the folder of LXC's files for the instance's containers, as seen in their mount namespaces."""
    return LXC_RUN / limits.folder(paths)


def monitor_pid(vmid: int, paths: Paths) -> int | None:
    """Return LXC's monitor process of a container, or None if it does not run."""
    file = paths.runtime(vmid, "monitor")
    try:
        pid = int(file.read_text())
    except FileNotFoundError:
        return find_all(paths).get(vmid) if limits.exist(paths, vmid) else None
    except ValueError:
        pid = 0
    if _vmid_of(process.command(pid), paths) == vmid and _is_ours(pid):
        return pid
    return find_all(paths).get(vmid)


def find_all(paths: Paths) -> dict[int, int]:
    """Return VMID -> monitor process of all containers of the node, by the processes' command lines."""
    youngest: dict[int, tuple[int, int]] = {}  # while LXC forks, two processes have the command line
    for entry in Path("/proc").iterdir():
        vmid = _vmid_of(process.command(int(entry.name)), paths) if entry.name.isdigit() else None
        start_time = process.start_time(int(entry.name)) if vmid and _is_ours(int(entry.name)) else None
        if vmid and start_time is not None:
            youngest[vmid] = max(youngest.get(vmid, (0, 0)), (start_time, int(entry.name)))
    return {vmid: pid for vmid, (_, pid) in sorted(youngest.items())}


def _vmid_of(words: list[str], paths: Paths) -> int | None:
    """Return the VMID in a monitor's command line; None for other processes.

    It is ``[lxc monitor] FOLDER VMID``, and at first ``lxc-start .. -P FOLDER -n VMID``.
    """
    if len(words) == 1 and words[0].startswith("[lxc monitor] "):
        folder, _, name = words[0].removeprefix("[lxc monitor] ").rpartition(" ")
    elif len(words) > 6 and words[0].endswith("lxc-start"):
        folder, name = words[4], words[6]
    else:
        return None
    return int(name) if folder == str(lxc_folder(paths)) and name.isdigit() else None


def _is_ours(pid: int) -> bool:
    """Return whether a process lives and is ours: other users and containers can fake a command line."""
    try:
        same_namespace = Path(f"/proc/{pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
        owner = Path(f"/proc/{pid}").stat().st_uid
        return same_namespace and owner == os.geteuid() and process.start_time(pid) is not None
    except OSError:
        return False


def init_pid(vmid: int, paths: Paths) -> int | None:
    """Return the container's first process, or None if it does not run."""
    monitor = monitor_pid(vmid, paths)
    return None if monitor is None else next(iter(process.children(monitor)), None)


def all_pids(vmid: int, paths: Paths) -> set[int]:
    """Return the living processes of a container that must be ended, including its monitor.

    While its first process lives, that is the only one: the others end with it.
    """
    monitor = monitor_pid(vmid, paths)
    if monitor is not None and (children := process.children(monitor)):
        return set(children)
    pids = limits.processes(vmid, paths) | ({monitor} if monitor else set())
    return {pid for pid in pids if process.start_time(pid) is not None}


def remember(vmid: int, paths: Paths) -> None:
    """Note a container's first process, so that `reap` notices a reboot from inside."""
    if (pid := init_pid(vmid, paths)) is not None:
        _init_pids[paths.run, vmid] = pid


def reap(vmid: int, options: Mapping[str, str], paths: Paths) -> None:
    """Clean up after a container that ended by itself; set the rate caps of one that rebooted from inside."""
    if not (lock := locks[paths.run, vmid]).acquire(blocking=False):
        return
    try:
        pid = init_pid(vmid, paths)
        if pid is None and _needs_cleaning(vmid, paths) and monitor_pid(vmid, paths) is None:
            log.info("CT %d: ended by itself", vmid)
            clean(vmid, paths)
        elif pid is not None and _init_pids.setdefault((paths.run, vmid), pid) != pid:
            log.info("CT %d: rebooted from inside", vmid)
            _init_pids[paths.run, vmid] = pid
            for index, nic in container_nics.of_config(options).items():
                guest_ports.set_rate(container_nics.host_name(vmid, index), nic.rate_bytes)
    finally:
        lock.release()


def _needs_cleaning(vmid: int, paths: Paths) -> bool:
    return (
        paths.runtime(vmid, "monitor").exists()
        or limits.exist(paths, vmid)
        or bool(links.container_links(vmid))
    )


def clean(vmid: int, paths: Paths) -> None:
    """Remove what a container needed while it ran: NICs with ifb devices, control groups, LXC's files."""
    links.unplug(links.container_links(vmid))
    limits.remove(paths, vmid)
    paths.runtime(vmid, "monitor").unlink(missing_ok=True)
    _init_pids.pop((paths.run, vmid), None)


def vmids(paths: Paths) -> set[int]:
    """Return the containers that run, or have just ended."""
    return {int(file.stem) for file in paths.run.glob("*.monitor")}


def state(vmid: int, paths: Paths) -> ContainerState:
    """Return the current state of a container."""
    pid = init_pid(vmid, paths)
    uptime_s = None if pid is None else process.age_s(pid)
    if pid is None or uptime_s is None:
        return ContainerState("stopped")
    traffic = links.counters(f"veth{vmid}i")
    return ContainerState(
        status="running",
        pid=pid,
        uptime_s=int(uptime_s),
        cpu=host.processors((paths.run, vmid), pid, uptime_s, limits.used_cpu_s(vmid, paths)),
        mem_bytes=limits.used_memory(vmid, paths),
        nics={name: {"netin": to_guest, "netout": out} for name, (to_guest, out) in traffic.items()},
    )
