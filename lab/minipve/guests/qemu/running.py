"""Which machines run, from /proc rather than from memory: QEMU outlives the endpoint.

QEMU writes a pid file. It counts only if that process was started with this pid file. When a QEMU has
ended, `reap` removes what it left behind (taps, sockets).
"""

from __future__ import annotations

import logging
import re
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from minipve.base import cpu_usage, process
from minipve.base.paths import Paths
from minipve.base.process import MachineError
from minipve.guests.qemu import channel, qmp
from minipve.network import links

SOCKETS = ("qmp", "qga", "serial0")
log = logging.getLogger(__name__)
locks: defaultdict[tuple[Path, int], threading.RLock] = defaultdict(threading.RLock)
"""One lock per machine, held while it is started, stopped or cleaned up."""


@dataclass(frozen=True)
class MachineState:
    """The state of a machine.

    ``cpu`` is the mean number of processors in use since the last sample. ``nics`` holds bytes by tap:
    ``{"tap100i0": {"netin": to the guest, "netout": from the guest}}``.
    """

    status: str
    pid: int | None = None
    uptime_s: int = 0
    qmpstatus: str = "stopped"
    cpu: float = 0.0
    mem_bytes: int = 0
    nics: dict[str, dict[str, int]] = field(default_factory=dict)


def running_pid(vmid: int, paths: Paths) -> int | None:
    """Return the QEMU process of a machine, or None if it does not run."""
    file = paths.runtime(vmid, "pid")
    try:
        pid = int(file.read_text())
    except FileNotFoundError:
        if not paths.runtime(vmid, "qmp").exists():
            return None
        pid = 0  # the pid file was removed while the monitor's socket still exists
    except ValueError:
        pid = 0  # QEMU has not written to its new pid file yet, or the file is damaged
    if str(file) in process.command(pid) and process.start_time(pid) is not None:
        return pid
    return _pid_by_command_line(vmid, paths)


def _pid_by_command_line(vmid: int, paths: Paths) -> int | None:
    """Return the machine's process without its pid file; None while another thread starts or stops it."""
    if not (lock := locks[paths.run, vmid]).acquire(blocking=False):
        return None
    try:
        return find_all(paths).get(vmid)
    finally:
        lock.release()


def find_all(paths: Paths) -> dict[int, int]:
    """Return VMID -> process of all machines of the node, by the processes' command lines."""
    youngest: dict[int, tuple[int, int]] = {}  # while QEMU forks, two processes have the command line
    for entry in Path("/proc").iterdir():
        words = process.command(int(entry.name)) if entry.name.isdigit() else []
        pid_file = words[words.index("-pidfile") + 1] if "-pidfile" in words[:-1] else ""
        match = re.fullmatch(rf"{re.escape(str(paths.run))}/([1-9][0-9]+)\.pid", pid_file)
        if match and (start_time := process.start_time(int(entry.name))) is not None:
            vmid = int(match[1])
            youngest[vmid] = max(youngest.get(vmid, (0, 0)), (start_time, int(entry.name)))
    return {vmid: pid for vmid, (_, pid) in sorted(youngest.items())}


def reap(vmid: int, paths: Paths) -> None:
    """Clean up after a QEMU that ended by itself, and log it. Does nothing while the machine is started."""
    lock = locks[paths.run, vmid]
    if not lock.acquire(blocking=False):
        return
    try:
        if running_pid(vmid, paths) is not None:
            return
        if paths.runtime(vmid, "pid").exists():  # QEMU removes it when it exits normally
            log.warning("VM %d: QEMU was killed or crashed; its taps and sockets are removed", vmid)
            clean(vmid, paths)
        elif links.machine_taps(vmid):
            log.info("VM %d: powered off by its guest; its taps are removed", vmid)
            clean(vmid, paths)
    finally:
        lock.release()


def clean(vmid: int, paths: Paths) -> None:
    """Remove what QEMU needed while it ran: taps with their ifb devices, sockets, pid file."""
    links.unplug(links.machine_taps(vmid))
    for kind in (*SOCKETS, "pid"):
        paths.runtime(vmid, kind).unlink(missing_ok=True)


def has_agent(vmid: int, paths: Paths) -> bool:
    """Whether the running machine has a port for a guest agent. Its configuration may have changed since."""
    pid = running_pid(vmid, paths)
    return pid is not None and any("chardev=qga0" in word for word in process.command(pid))


def state(vmid: int, paths: Paths) -> MachineState:
    """Return the current state of a machine, from one QMP command and /proc."""
    pid = running_pid(vmid, paths)
    if pid is None:
        return MachineState("stopped")
    try:
        qmpstatus = channel.member(qmp.Qmp(vmid, paths).execute("query-status", timeout_s=1), "status", str)
    except MachineError:
        qmpstatus = "unknown"
    uptime_s = process.age_s(pid)
    if uptime_s is None:
        return MachineState("stopped")
    traffic = links.counters(f"tap{vmid}i")
    return MachineState(
        status="running",
        pid=pid,
        uptime_s=int(uptime_s),
        qmpstatus=qmpstatus,
        cpu=cpu_usage.processors((paths.run, vmid), pid, uptime_s, process.cpu_s(pid)),
        mem_bytes=process.memory_bytes(pid),
        nics={tap: {"netin": to_guest, "netout": out} for tap, (to_guest, out) in traffic.items()},
    )
