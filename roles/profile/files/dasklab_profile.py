#!/usr/bin/python3 -SsE
"""Look what a service's Python processes do, a hundred times a second, with py-spy.

    dasklab_profile.py start PATH --service X.service --program /opt/dask/bin/py-spy --processes 2 --ttl 600
    dasklab_profile.py end PATH

``start`` waits for the processes of a service that was just started: its main one, or where that is a shell
so many children of it. Each is watched in a transient unit of systemd that ends with the process, and at the
latest after ``--ttl``. ``end`` ends the units and says which files, for speedscope.app, they left, with their
bytes: ``PATH.json`` or, of several processes, ``PATH-1.json`` and so on; and why there is none.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from dasklab_common import main, read, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Document = dict[str, Any]

PROC = Path("/proc")
SAID = "said"  # what py-spy said; ends its file's name
UNIT = "dasklab-profile"
PER_S = 100
COME_S = STOP_S = 10  # in which the processes must be there, and a profile written
LOOK_S = 0.05


def python(pid: int) -> bool:
    """Is it a Python process?"""
    return (PROC / str(pid) / "exe").resolve().name.startswith("python")


def children(pid: int) -> list[int]:
    """Return the processes that a process started and that are still there."""
    return [int(child) for child in read(PROC / f"{pid}/task/{pid}/children").split()]


def watched(main_pid: int) -> list[int]:
    """Return whom to watch: a process with all it starts, or of a shell the Python ones that it started."""
    return [main_pid] if python(main_pid) else [pid for pid in children(main_pid) if python(pid)]


def command(program: str, pid: int, path: Path, ttl_s: int) -> list[str]:
    """Return the command that watches one process in a unit of its own (pure)."""
    properties = [
        f"RuntimeMaxSec={ttl_s}",
        f"TimeoutStopSec={STOP_S}",
        "KillSignal=SIGINT",
        f"StandardError=truncate:{path.with_suffix('.' + SAID)}",
    ]
    unit = ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}-{pid}"]
    spy = [program, "record", "--subprocesses", f"--rate={PER_S}", "--format=speedscope"]
    return [
        *unit,
        *(f"--property={text}" for text in properties),
        *spy,
        f"--pid={pid}",
        f"--output={path}",
        f"--duration={ttl_s}",
    ]


def start(path: Path, service: str, program: str, processes: int, ttl_s: int) -> Document:
    """Watch each of the service's Python processes."""
    end(path)
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir(parents=True)
    main_pid = int(run(["systemctl", "show", "--property=MainPID", "--value", service]))
    until = time.monotonic() + COME_S
    while not (python(main_pid) or len(watched(main_pid)) >= processes) and time.monotonic() < until:
        time.sleep(LOOK_S)
    found = watched(main_pid)
    for number, pid in enumerate(found, start=1):
        name = f"{path.name}-{number}" if len(found) > 1 else path.name
        run(command(program, pid, path.with_name(f"{name}.json"), ttl_s))
    return {"watched": found}


def end(path: Path) -> Document:
    """End the units, which write what they saw."""
    run(["systemctl", "stop", f"{UNIT}-*"])
    files = sorted(path.parent.glob("*.json"))
    said = [words for file in sorted(path.parent.glob(f"*.{SAID}")) if (words := _last(file))]
    return {"files": {file.name: file.stat().st_size for file in files}, "said": [] if files else said}


def _last(path: Path) -> str:
    """The last line of what was said."""
    lines = read(path).strip().splitlines()
    return lines[-1] if lines else ""


def answer(argv: Sequence[str]) -> Document | None:
    """Do what the command line says and return the answer."""
    if len(argv) == 2 and argv[0] == "end":
        return end(Path(argv[1]))
    options = ["--service", "--program", "--processes", "--ttl"]
    if len(argv) == 10 and argv[0] == "start" and list(argv[2::2]) == options:
        return start(Path(argv[1]), argv[3], argv[5], int(argv[7]), int(argv[9]))
    return sys.exit(__doc__)


if __name__ == "__main__":
    main(answer)
