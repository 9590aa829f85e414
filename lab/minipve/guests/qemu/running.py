"""Which machines run, and with which accelerator."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import threading
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

from minipve.base import host, process
from minipve.base.atomic import write_atomic
from minipve.base.errors import MachineError
from minipve.base.paths import Paths
from minipve.guests.qemu import channel
from minipve.image import direct_boot
from minipve.network import links

# Choose the accelerator, KVM or TCG, by trying to boot a kernel under KVM.
#
# Weaker tests are not reliable: on some nested clouds /dev/kvm opens, creates machines and runs their
# firmware, and still a Linux kernel never boots. So the golden image's kernel is started under KVM without
# a
# root file system. Where KVM works, the kernel boots in about a second and then panics, because it has no
# root
# file system. The result is cached until the host reboots or QEMU changes.

DEVICE = Path("/dev/kvm")
BOOT_TIMEOUT_S = 4.0
X86_64_V2 = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt"  # QEMU 7.2 does not have Proxmox VE's name for it
EXPECTED_PANIC = "Unable to mount root fs"
_probe_lock = threading.Lock()  # machines that start together share one probe


@dataclass(frozen=True)
class Accel:
    """The accelerator to use, ``kvm`` or ``tcg``, and the reason."""

    name: str
    reason: str


def probe(paths: Paths) -> Accel:
    """Return the accelerator for this host. The result is kept until the host reboots or QEMU changes."""
    if problem := _opening_problem():
        return Accel("tcg", problem)
    cache, key = paths.cache / "accel.json", _key()
    with _probe_lock:
        if (result := _cached(cache)) and result.pop("key") == key:
            return Accel(**result)
        accel = _probe(paths)
        if accel is None:
            return Accel("tcg", "KVM has not been tried: there is no golden image yet")
        write_atomic(cache, json.dumps({"key": key, **asdict(accel)}))
    return accel


def _cached(file: Path) -> dict[str, str]:
    """Read an earlier result; empty if there is none or it is damaged."""
    try:
        result = json.loads(file.read_bytes())
        return {key: str(result[key]) for key in ("key", "name", "reason")}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}


def _probe(paths: Paths) -> Accel | None:
    """Boot the newest golden image's kernel (never an uploaded one); None if there is no golden image."""
    kernel = direct_boot.newest_kernel(paths)
    return _try_boot(kernel) if kernel else None


def _opening_problem() -> str | None:
    """Return why /dev/kvm cannot be opened, or None if it can."""
    try:
        os.close(os.open(DEVICE, os.O_RDWR))
    except OSError as error:
        return f"{DEVICE} cannot be opened: {error.strerror}"
    return None


def _try_boot(kernel: Path) -> Accel:
    start = time.monotonic()
    words = probe_words(kernel)
    try:
        result = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=BOOT_TIMEOUT_S)
        output = result.stdout or result.stderr
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
    return judge(output.decode(errors="replace"), time.monotonic() - start)


def probe_words(kernel: Path) -> list[str]:
    """Return QEMU's command line for a kernel without a disk; its panic ends QEMU (pure)."""
    machine = ["-machine", "pc", "-accel", "kvm", "-cpu", X86_64_V2, "-m", "256", "-nodefaults"]
    console = ["-no-reboot", "-display", "none", "-serial", "stdio"]
    append = ["-append", "console=ttyS0 panic=-1 nokaslr mitigations=off"]
    return ["qemu-system-x86_64", *machine, *console, "-kernel", str(kernel), *append]


def judge(console: str, seconds: float) -> Accel:
    """Decide by what the kernel wrote to its console in ``seconds`` (pure)."""
    if EXPECTED_PANIC in console:
        return Accel("kvm", f"a kernel booted under KVM in {seconds:.1f} s")
    lines = [line.strip() for line in console.splitlines() if line.strip()]
    last = f"its last line: {lines[-1][:80]}" if lines else "it printed nothing"
    return Accel("tcg", f"a kernel did not boot under KVM within {seconds:.0f} s ({last})")


def _key() -> str:
    """Return a text that changes when the host reboots or its QEMU is replaced."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    version = process.run(["qemu-system-x86_64", "--version"]).splitlines()[0]
    return f"{boot} {version}"


# Which machines run, from /proc rather than from memory: QEMU outlives the endpoint.
#
# QEMU writes a pid file. It counts only if that process was started with this pid file. When a QEMU has
# ended, `reap` removes what it left behind (taps, sockets).

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
        qmpstatus = channel.member(
            channel.Qmp(vmid, paths).execute("query-status", timeout_s=1), "status", str
        )
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
        cpu=host.processors((paths.run, vmid), pid, uptime_s, process.cpu_s(pid)),
        mem_bytes=process.memory_bytes(pid),
        nics={tap: {"netin": to_guest, "netout": out} for tap, (to_guest, out) in traffic.items()},
    )
