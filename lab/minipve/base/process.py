"""Run programs, identify and end long-running processes, and report progress."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO

from minipve.base import strict_json
from minipve.base.errors import MachineError, UserError

# Run programs, and identify and end long-running processes.
#
# The kernel reuses process ids. So a pid file contains `pid start-time`, and is valid only while both
# match.


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
    "prlimit": "util-linux",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "setsid": "util-linux",
    "tar": "tar",
    "tc": "iproute2",
    "unshare": "util-linux",
    "xorriso": "xorriso",
    "zstd": "zstd",
}


def require_tools(*tools: str) -> None:
    """Raise UserError, with the apt command to install them, for programs that are not installed."""
    missing = [tool for tool in tools if which(tool) is None]
    if missing:
        packages = " ".join(sorted({PACKAGES.get(tool, tool) for tool in missing}))
        raise UserError(f"not installed: {', '.join(missing)}", f"apt install {packages}")


def which(tool: str) -> str | None:
    """Return the path of a program; also of one in /usr/sbin or /sbin, which a user's PATH may lack."""
    path = os.environ.get("PATH", os.defpath)
    return shutil.which(tool, path=f"{path}:/usr/sbin:/sbin")


def run(argv: Sequence[str | Path], *, stdin: str | None = None, timeout_s: float = 60) -> str:
    """Run a program and return its output. Raises MachineError with the last line of its error output."""
    program = which(str(argv[0]))
    if program is None:
        require_tools(str(argv[0]))
    try:
        completed = subprocess.run(
            [program or argv[0], *argv[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"command '{_text(argv)}' failed: got timeout") from error
    if completed.returncode != 0:
        reason = (completed.stderr.strip() or completed.stdout.strip() or "no message").splitlines()[-1]
        raise MachineError(f"command '{_text(argv)}' failed: exit code {completed.returncode} ({reason})")
    return completed.stdout


def run_json(argv: Sequence[str | Path], *, timeout_s: float = 60) -> Any:
    """Run a program that prints JSON. Returns the value, or None if it prints nothing."""
    output = run(argv, timeout_s=timeout_s)
    try:
        return strict_json.loads(output) if output.strip() else None
    except ValueError as error:
        raise MachineError(f"command '{_text(argv)}' failed: its output is not JSON") from error


def remove_tree(folder: Path) -> None:
    """Remove a folder of any depth. `shutil.rmtree` fails with RecursionError at a thousand levels.

    Raises:
        MachineError: something cannot be removed. The text names it.
    """
    run(["rm", "-rf", "--", folder], timeout_s=600)


def _text(argv: Sequence[str | Path]) -> str:
    return " ".join(str(word) for word in argv)


def start_time(pid: int) -> int | None:
    """Return a process's start time in clock ticks since boot; None if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def age_s(pid: int) -> float | None:
    """Return a process's age in seconds (at least 0.01); None if it does not exist or is a zombie."""
    start = start_time(pid)
    if start is None:
        return None
    return max(time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK"), 0.01)


def cpu_s(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def command(pid: int) -> list[str]:
    """Return the words of a process's command line; empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def children(pid: int) -> list[int]:
    """Return the running child processes of a process."""
    try:
        pids = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [child for child in pids if start_time(child) is not None]


def remember(pid: int, file: Path) -> None:
    """Write the pid file ``file`` for `recall`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{pid} {start_time(pid)}\n")  # in place, since the endpoint keeps its pid file locked


def recall(file: Path) -> int | None:
    """Return the process of a pid file; None if it has ended or its id belongs to another process."""
    try:
        pid, start = (int(word) for word in file.read_text().split())
    except (FileNotFoundError, ValueError):
        return None
    return pid if start_time(pid) == start else None


def wait_for_exit(pid: int, timeout_s: float) -> bool:
    """Wait until a process has ended, and reap it if it is our child. False after ``timeout_s`` seconds."""
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
    """End a process by SIGTERM, and after ``timeout_s`` by SIGKILL, as Proxmox VE stops a machine."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if wait_for_exit(pid, timeout_s):
            return
    raise MachineError(f"process {pid} does not end")


# Progress reports of long work: current step, fraction, remaining seconds.

Progress = Callable[[str, float, float | None], None]
"""``(step, fraction 0..1, seconds left or None)``. It is called often, so it must be fast."""

Step = Callable[[str, str], AbstractContextManager[Progress]]


def silent(what: str, fraction: float, left_s: float | None) -> None:
    """Ignore all reports."""


class Steps:
    """Named steps with their usual duration, to compute the overall fraction and the remaining time."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.total_s = sum(seconds.values())

    def before(self, name: str) -> float:
        """Return the usual seconds of all steps before ``name``."""
        names = list(self.seconds)
        return sum(self.seconds[step] for step in names[: names.index(name)])

    @contextlib.contextmanager
    def run(self, progress: Progress) -> Iterator[Step]:
        """Yield ``step(name, text)``, a context manager that yields the Progress of that step."""
        start = time.monotonic()

        @contextlib.contextmanager
        def step(name: str, what: str) -> Iterator[Progress]:
            def within(detail: str, fraction: float, _left_s: float | None) -> None:
                done_s = self.before(name) + fraction * self.seconds[name]
                progress(what, done_s / self.total_s, self.left_s(done_s, time.monotonic() - start))

            within("", 0.0, None)
            yield within

        yield step
        progress(f"done in {time.monotonic() - start:.0f} s", 1.0, 0.0)

    def left_s(self, done_s: float, elapsed_s: float) -> float:
        """Return the remaining seconds: the usual time of the rest, scaled by this machine's pace so far."""
        pace = elapsed_s / done_s if done_s >= 0.1 * self.total_s else 1.0
        return (self.total_s - done_s) * pace


def terminal(stream: TextIO = sys.stderr) -> Progress:
    """Return a Progress for people: one updated line on a terminal, one line per step elsewhere."""
    live, last_step = stream.isatty(), [""]

    def show(what: str, fraction: float, left_s: float | None) -> None:
        if live:
            left = "" if left_s is None or fraction >= 1 else f", {left_s:.0f} s left"
            end = "\n" if fraction >= 1 else ""
            print(f"\r\033[Kgolden image: {what} ({fraction:.0%}{left})", end=end, file=stream, flush=True)
        elif what != last_step[0]:
            print(f"golden image: {what}", file=stream, flush=True)
        last_step[0] = what

    return show
