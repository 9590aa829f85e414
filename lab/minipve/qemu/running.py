"""What runs, told by /proc and not by memory: QEMU is a daemon that outlives the endpoint.

The pid file that QEMU itself writes counts only while that process is the one that was started with it.
What a dead QEMU left behind (taps, sockets) is removed when that is noticed.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from minipve import cpu_usage, process
from minipve.network import links
from minipve.paths import Paths
from minipve.process import MachineError
from minipve.qemu import channel, qmp

SOCKETS = ("qmp", "qga", "serial0")
log = logging.getLogger(__name__)
locks: defaultdict[tuple[Path, int], threading.RLock] = defaultdict(threading.RLock)
"""One for each machine, held while it is started, stopped or cleaned up after."""


@dataclass(frozen=True)
class MachineState:
    """What can be seen of a machine.

    ``cpu`` is the processors used since the look before (0..cores), ``nics`` bytes by tap:
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
    """The QEMU process of a machine, None when it does not run."""
    file = paths.runtime(vmid, "pid")
    try:
        pid = int(file.read_text())
    except FileNotFoundError:
        if not paths.runtime(vmid, "qmp").exists():
            return None
        pid = 0  # it is gone, while the monitor's socket is still there
    except ValueError:
        pid = 0  # QEMU has made the file and not yet written to it, or it is damaged
    if str(file) in process.command(pid) and process.start_time(pid) is not None:
        return pid
    return _found(vmid, paths)


def _found(vmid: int, paths: Paths) -> int | None:
    """The machine's process by its command line, when its pid file says nothing true; not while it starts."""
    if not (lock := locks[paths.run, vmid]).acquire(blocking=False):
        return None
    try:
        return find_all(paths).get(vmid)
    finally:
        lock.release()


def find_all(paths: Paths) -> dict[int, int]:
    """VMID -> process of all machines of the instance, from the processes' own command lines."""
    found: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        words = process.command(int(entry.name)) if entry.name.isdigit() else []
        match = re.fullmatch(rf"{re.escape(str(paths.run))}/([1-9][0-9]+)\.pid", _after("-pidfile", words))
        if match and (began := process.start_time(int(entry.name))) is not None:
            vmid = int(match[1])  # QEMU becomes a daemon by a child: the youngest is the machine
            found[vmid] = max(found.get(vmid, (0, 0)), (began, int(entry.name)))
    return {vmid: pid for vmid, (_, pid) in sorted(found.items())}


def _after(option: str, words: list[str]) -> str:
    return words[words.index(option) + 1] if option in words[:-1] else ""


def reap(vmid: int, paths: Paths) -> None:
    """Remove what a QEMU that ended by itself left behind, and say so; nothing while it is being started."""
    lock = locks[paths.run, vmid]
    if not lock.acquire(blocking=False):
        return
    try:
        if running_pid(vmid, paths) is not None:
            return
        if paths.runtime(vmid, "pid").exists():  # QEMU removes it when it ends in order
            log.warning("VM %d: QEMU was killed or crashed; its taps and sockets are removed", vmid)
            clean(vmid, paths)
        elif links.machine_taps(vmid):
            log.info("VM %d: powered off by its guest; its taps are removed", vmid)
            clean(vmid, paths)
    finally:
        lock.release()


def clean(vmid: int, paths: Paths) -> None:
    """Remove what a machine's QEMU needed while it ran: taps with their ifbs, sockets, pid file."""
    links.unplug(links.machine_taps(vmid))
    for kind in (*SOCKETS, "pid"):
        paths.runtime(vmid, kind).unlink(missing_ok=True)


def has_agent(vmid: int, paths: Paths) -> bool:
    """Whether the running machine has a guest agent port (its config may say otherwise by now)."""
    pid = running_pid(vmid, paths)
    return pid is not None and any("chardev=qga0" in word for word in process.command(pid))


def state(vmid: int, paths: Paths) -> MachineState:
    """What can be seen of a machine now; cheap: one QMP question, else /proc."""
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
