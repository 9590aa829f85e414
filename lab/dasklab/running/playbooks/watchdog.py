"""Detect that an ansible-playbook hangs: it exceeds its time limit, or waits for a worker that is dead.

Ansible runs each task in a worker, a fork of itself. If a worker is killed (by the kernel, when memory is
short) and the next worker takes its place, Ansible does not notice and waits for the lost result for ever.
This is visible from outside: Ansible has no worker, and neither computes nor waits for a CPU. Mitogen's own
processes, which Ansible starts as well and which live as long as it does, are no workers. Mitogen names them
if the package setproctitle is installed.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

IDLE_S = 30.0  # without a worker; time in which Ansible parses, templates or waits for a CPU does not count
MITOGEN = "mitogen mux:"  # begins the command line of Mitogen's own processes


class Watchdog:
    """Watches one process of ansible-playbook.

    Args:
        pid: the process.
        limit_s: how long it may run; None for no limit.
        idle_s: how long it may do nothing.
    """

    def __init__(self, pid: int, limit_s: float | None, idle_s: float = IDLE_S) -> None:
        self._pid, self._limit_s, self._idle_s = pid, limit_s, idle_s
        self._start_s = time.monotonic()
        self._without_worker: tuple[float, float] | None = None  # since when, and how busy it was before that

    def problem(self) -> str | None:
        """Return why the process must be stopped, or None. Call this again and again."""
        now = time.monotonic()
        if self._limit_s is not None and now - self._start_s > self._limit_s:
            return f"it did not finish within {self._limit_s:.0f} s"
        if _has_worker(self._pid):
            self._without_worker = None
            return None
        busy_s = _busy_s(self._pid)
        since, busy_before_s = self._without_worker = self._without_worker or (now, busy_s)
        if now - since - (busy_s - busy_before_s) > self._idle_s:
            waited = f"Ansible waited {now - since:.0f} s for it"
            return f"an Ansible worker died (out of memory?), and {waited}"
        return None


def _has_worker(pid: int) -> bool:
    """Return whether Ansible has a living worker. True if the kernel does not list children."""
    lists = list(Path(f"/proc/{pid}/task").glob("*/children"))
    children = [child for file in lists for child in _read(file).split()]
    return not lists or any(_is_worker(child) for child in children)


def _is_worker(pid: str) -> bool:
    return _state(pid) not in "ZX" and not _read(Path(f"/proc/{pid}/cmdline")).startswith(MITOGEN)


def _state(pid: str) -> str:
    return _read(Path(f"/proc/{pid}/stat")).rpartition(") ")[2][:1] or "X"


def _busy_s(pid: int) -> float:
    """Return how long a process, without its children, has computed and its main thread waited for a CPU."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(") ")[2].split()
    waits = _read(Path(f"/proc/{pid}/schedstat")).split()
    cpu_s = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return cpu_s + (int(waits[1]) / 1e9 if len(waits) > 1 else 0.0)


def _read(path: Path) -> str:
    with suppress(OSError):  # the process has ended
        return path.read_text(encoding="utf-8")
    return ""
