"""Sample the Python processes of a service with py-spy, a hundred times a second.

``start`` waits for the processes of a service that was just started: its main process or, if that is a
shell, as many Python children as requested. Each is sampled by a transient systemd unit that ends with the
process, after ``ttl_s`` at the latest. ``stop`` ends the units; each leaves a file for speedscope.app.
"""

from __future__ import annotations

import time
from pathlib import Path

from dasklab_guest.common import RUNTIME, read, run, start_unit, stop_units
from dasklab_guest.order import TRIAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dasklab_guest.common import Document

PROC = Path("/proc")
UNIT = "dasklab-profile"
SAMPLES_PER_S = 100
APPEAR_TIMEOUT_S = STOP_TIMEOUT_S = 10  # for the processes to appear, and for a profile to be written
POLL_S = 0.05


def is_python(pid: int) -> bool:
    """Return whether a process is Python."""
    return (PROC / str(pid) / "exe").resolve().name.startswith("python")


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    return [int(child) for child in read(PROC / f"{pid}/task/{pid}/children").split()]


def targets(main_pid: int) -> list[int]:
    """Return the processes to sample: a Python one with its children, or the Python children of a shell."""
    return [main_pid] if is_python(main_pid) else [pid for pid in children(main_pid) if is_python(pid)]


def command(program: str, pid: int, path: Path, ttl_s: float) -> list[str]:
    """Return the py-spy command for one process."""
    options = ["--subprocesses", f"--rate={SAMPLES_PER_S}", "--format=speedscope"]
    return [program, "record", *options, f"--pid={pid}", f"--output={path}", f"--duration={ttl_s:g}"]


def start(service: str, program: str, processes: int, ttl_s: float) -> Document:
    """Sample each Python process of a service.

    Args:
        service: the systemd service.
        program: the path of py-spy.
        processes: how many processes to wait for where the service starts with a shell.
        ttl_s: seconds until the sampling ends in any case.
    """
    stop_units(f"{UNIT}-*")
    for directory in (TRIAL, RUNTIME):
        directory.mkdir(parents=True, exist_ok=True)
    main_pid = int(run(["systemctl", "show", "--property=MainPID", "--value", service]))
    deadline = time.monotonic() + APPEAR_TIMEOUT_S
    while not (is_python(main_pid) or len(targets(main_pid)) >= processes) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    pids = targets(main_pid)
    for number, pid in enumerate(pids, start=1):
        suffix = f"-{number}" if len(pids) > 1 else ""
        start_unit(
            f"{UNIT}-{pid}",
            command(program, pid, TRIAL / f"profile{suffix}.json", ttl_s),
            RuntimeMaxSec=ttl_s,
            TimeoutStopSec=STOP_TIMEOUT_S,
            KillSignal="SIGINT",
            StandardError=f"truncate:{RUNTIME / f'profile{suffix}.log'}",
        )
    return {"pids": pids}


def stop() -> Document:
    """End the sampling.

    Returns:
        ``files``: the profiles; ``messages``: py-spy's last words where there is no profile.
    """
    stop_units(f"{UNIT}-*")
    files = sorted(path.name for path in TRIAL.glob("profile*.json"))
    logs = [read(path).strip().splitlines() for path in sorted(RUNTIME.glob("profile*.log"))]
    return {"files": files, "messages": [] if files else [lines[-1] for lines in logs if lines]}


def reset() -> None:
    """End the sampling."""
    stop_units(f"{UNIT}-*")


STEPS = {"start": start, "stop": stop}
