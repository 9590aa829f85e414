"""Programs that minipve runs and processes that it leaves running: one way to start, know and end them.

A process id alone is no identity (it is used again), so a process that must be found later is written
down as ``pid start-time`` and believed only while both still agree with /proc.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minipve import strict_json
from minipve.user_error import UserError


class MachineError(Exception):
    """An operation on a machine failed; the text is Proxmox VE's where Proxmox VE has one."""


PACKAGES = {
    "bridge": "iproute2",
    "debugfs": "e2fsprogs",
    "ip": "iproute2",
    "lxc-start": "lxc",
    "lxc-usernsexec": "lxc",
    "mke2fs": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "nc": "netcat-openbsd",
    "newuidmap": "uidmap",
    "nsenter": "util-linux",
    "qemu-img": "qemu-utils",
    "qemu-nbd": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "setsid": "util-linux",
    "tar": "tar",
    "tc": "iproute2",
    "unshare": "util-linux",
    "xorriso": "xorriso",
    "zstd": "zstd",
}


def need(*tools: str) -> None:
    """Refuse with one line, and the apt line that mends it, when a program is not installed."""
    missing = [tool for tool in tools if which(tool) is None]
    if missing:
        packages = " ".join(sorted({PACKAGES.get(tool, tool) for tool in missing}))
        raise UserError(f"not installed: {', '.join(missing)}", f"apt install {packages}")


def which(tool: str) -> str | None:
    """Where a program is; the system directories count also for users whose PATH lacks them."""
    path = os.environ.get("PATH", os.defpath)
    return shutil.which(tool, path=f"{path}:/usr/sbin:/sbin")


def run(argv: Sequence[str | Path], *, stdin: str | None = None, timeout_s: float = 60) -> str:
    """Run a program to its end and return its output; a failure raises MachineError with its last words."""
    program = which(str(argv[0]))
    if program is None:
        need(str(argv[0]))
    try:
        done = subprocess.run(
            [program or argv[0], *argv[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"command '{_text(argv)}' failed: got timeout") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise MachineError(f"command '{_text(argv)}' failed: exit code {done.returncode} ({said})")
    return done.stdout


def run_json(argv: Sequence[str | Path], *, timeout_s: float = 60) -> Any:
    """Run a program that prints JSON; return the value, or None if it prints nothing."""
    output = run(argv, timeout_s=timeout_s)
    try:
        return strict_json.loads(output) if output.strip() else None
    except ValueError as error:
        raise MachineError(f"command '{_text(argv)}' failed: its output is not JSON") from error


def _text(argv: Sequence[str | Path]) -> str:
    return " ".join(str(word) for word in argv)


def start_time(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None when there is none or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def age_s(pid: int) -> float | None:
    """Seconds that a process has been there, more than none; None when there is none or it is a zombie."""
    began = start_time(pid)
    if began is None:
        return None
    return max(time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK"), 0.01)


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def command(pid: int) -> list[str]:
    """The words of a process's command line; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def children(pid: int) -> list[int]:
    """The living children of a process."""
    try:
        found = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [child for child in found if start_time(child) is not None]


def remember(pid: int, file: Path) -> None:
    """Write a process down so that `recall` finds it again."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{pid} {start_time(pid)}\n")  # in place: the endpoint's file is locked while it runs


def recall(file: Path) -> int | None:
    """The process that was written down, while it is alive and still the same one."""
    try:
        pid, began = (int(word) for word in file.read_text().split())
    except (FileNotFoundError, ValueError):
        return None
    return pid if start_time(pid) == began else None


def wait_for_exit(pid: int, timeout_s: float) -> bool:
    """Wait until a process is gone, reaping it when it is our own child."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        if start_time(pid) is None:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def end(pid: int, timeout_s: float = 10) -> None:
    """SIGTERM, and after ``timeout_s`` SIGKILL, as Proxmox VE stops a machine's process."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if wait_for_exit(pid, timeout_s):
            return
    raise MachineError(f"process {pid} does not end")
