"""End the processes that a test session leaves behind when it is ended by Ctrl-C, SIGTERM or SIGKILL.

Fixtures stop what they started, but they may not have the time: xdist kills its workers ten seconds after
Ctrl-C, and `dasklab destroy` of five machines takes longer. So each pytest process starts a guard in a
session of its own, which a terminal's Ctrl-C does not reach. The guard waits until its pytest process has
ended. Then it ends all processes that pytest started, directly or not; it recognises them by a mark in their
environment. Finally it purges the endpoints among them, which removes their networks, containers and mounts.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "DASKLAB_TEST_SESSION"
STATE = "MINIPVE_STATE"
PATIENCE_S = 10.0  # from SIGTERM to SIGKILL


def start() -> None:
    """Start a guard for this process, and mark all processes that this process starts from now on."""
    inherited = dict(os.environ)
    os.environ[MARK] = mark = f"{os.getpid()}-{time.time_ns()}"
    subprocess.Popen(
        [sys.executable, __file__, str(os.getpid()), mark],
        env={**inherited, MARK: "guard"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ).returncode = 0  # it outlives this process on purpose; this avoids a ResourceWarning


def main(pid: int, mark: str) -> None:
    """Wait until the process ``pid`` has ended, and end the processes that it left behind."""
    _wait(pid)
    states: set[str] = set()
    while left := _marked(mark):
        states |= {state for state in left.values() if state and state != os.environ.get(STATE)}
        _end(list(left))
    for state in sorted(states):
        command = [sys.executable, "-m", "minipve", "stop", "--purge"]
        subprocess.run(command, cwd=ROOT, env={**os.environ, STATE: state}, check=False)


def _wait(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([handle], [], [])
    os.close(handle)


def _marked(mark: str) -> dict[int, str]:
    """Return the processes with this mark, each with the state folder in its environment, if any."""
    marked = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
            zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:  # the process has ended, or belongs to another user
            continue
        environment = dict(word.partition("=")[::2] for word in words)
        if environment.get(MARK) == mark and not zombie:
            marked[int(entry.name)] = environment.get(STATE, "")
    return marked


def _end(pids: list[int]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            _signal(pid, number)
        deadline = time.monotonic() + PATIENCE_S
        while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.1)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
