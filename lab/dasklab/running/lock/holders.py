"""Find and end the processes that have a lock file open."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 10.0  # after a signal, before the next one


def holders(file: Path) -> set[int]:
    """Return the PIDs of other processes that have the file open, as far as this user may see them."""
    pids: set[int] = set()
    try:
        status = file.stat()
    except FileNotFoundError:
        return pids
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            if os.path.samestat(link.stat(), status):
                pids.add(int(link.parts[2]))
    return pids - {os.getpid()}


def end_holders(file: Path) -> bool:
    """End the other processes that have the file open, and their children. Return whether there were any."""
    any_ended = False
    for signum in (signal.SIGTERM, signal.SIGKILL):
        pids = holders(file)
        any_ended |= bool(pids)
        for pid in pids:
            _signal(pid, signum)
        deadline = time.monotonic() + PATIENCE_S
        while pids and (pids := holders(file)) and time.monotonic() < deadline:
            time.sleep(0.1)
        if not pids:
            break
    return any_ended


def _signal(pid: int, signum: signal.Signals) -> None:
    """Signal a process. SIGKILL goes to its whole process group if it leads one, as Ansible's workers do."""
    with suppress(ProcessLookupError, PermissionError):
        if signum == signal.SIGKILL and os.getpgid(pid) == pid:
            os.killpg(pid, signum)
        else:
            os.kill(pid, signum)
