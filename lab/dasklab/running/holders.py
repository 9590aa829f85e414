"""The processes that hold a lock file open, and how to end them."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 10.0  # for processes that were asked to end


def holders(file: Path) -> set[int]:
    """Return the other processes that have the file open, as far as this user may see."""
    pids: set[int] = set()
    try:
        wanted = file.stat()
    except FileNotFoundError:
        return pids
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # the process is gone, or it is another user's
            status = link.stat()
            if (status.st_dev, status.st_ino) == (wanted.st_dev, wanted.st_ino):
                pids.add(int(link.parts[2]))
    return pids - {os.getpid()}


def end_holders(file: Path) -> bool:
    """End the other processes that have the file open, with all that they started; True if there were any."""
    ended = False
    for signum in (signal.SIGTERM, signal.SIGKILL):
        pids = holders(file)
        ended |= bool(pids)
        for pid in pids:
            _signal(pid, signum)
        deadline = time.monotonic() + PATIENCE_S
        while pids and (pids := holders(file)) and time.monotonic() < deadline:
            time.sleep(0.1)
        if not pids:
            break
    return ended


def _signal(pid: int, signum: signal.Signals) -> None:
    """Signal a process; if it leads a group (Ansible and each of its workers do) its children as well."""
    with suppress(ProcessLookupError, PermissionError):
        if signum == signal.SIGKILL and os.getpgid(pid) == pid:
            os.killpg(pid, signum)
        else:
            os.kill(pid, signum)
