"""Notices that an ansible-playbook will never end: its time is over, or it waits for a worker that is dead.

Ansible hands each task to a worker, a fork of itself. If a worker is killed (by the kernel, for want of
memory) and its place is taken by the next one, Ansible does not notice and waits for the lost result for
ever. What it does then can be seen from outside: it has no worker and uses next to no CPU.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

IDLE_S = 60.0  # without a worker; parsing and templating may take that long, but then they use the CPU
BUSY_SHARE = 0.5  # of a CPU: an Ansible that waits uses a tenth of one


class Watchdog:
    """Looks at a process again and again.

    Args:
        pid: the process of ansible-playbook.
        limit_s: how long it may take; None for any time.
        idle_s: how long it may do nothing.
    """

    def __init__(self, pid: int, limit_s: float | None, idle_s: float = IDLE_S) -> None:
        self._pid, self._limit_s, self._idle_s = pid, limit_s, idle_s
        self._began = time.monotonic()
        self._idle_since: tuple[float, float] | None = None  # when, and the CPU seconds used until then

    def verdict(self) -> str | None:
        """Return why the process has to be ended; None as long as it may go on."""
        now = time.monotonic()
        if self._limit_s is not None and now - self._began > self._limit_s:
            return f"it was not done within its {self._limit_s:.0f} s"
        if _has_children(self._pid):
            self._idle_since = None
            return None
        cpu_s = _cpu_s(self._pid)
        since, cpu_then_s = self._idle_since = self._idle_since or (now, cpu_s)
        if cpu_s - cpu_then_s > BUSY_SHARE * self._idle_s:
            self._idle_since = None
        elif now - since > self._idle_s:
            waited = f"Ansible waited {now - since:.0f} s for it"
            return f"an Ansible worker died (killed, for want of memory?) and {waited}"
        return None


def _has_children(pid: int) -> bool:
    """Whether a process has a living child; where the kernel does not list them it counts as having some."""
    lists = list(Path(f"/proc/{pid}/task").glob("*/children"))
    children = [child for file in lists for child in _read(file).split()]
    return not lists or any(_state(child) not in "ZX" for child in children)


def _state(pid: str) -> str:
    return _read(Path(f"/proc/{pid}/stat")).rpartition(") ")[2][:1] or "X"


def _cpu_s(pid: int) -> float:
    """CPU seconds that the process has used, without its children."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(") ")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _read(path: Path) -> str:
    with suppress(OSError):  # the process is gone
        return path.read_text()
    return ""
