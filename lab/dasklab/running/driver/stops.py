"""Notice that this process was stopped: by SIGSTOP, by Ctrl-Z, or because its control group was frozen.

Who stops a whole lab stops its driver, too, so this shows stops outside of the timed repeats. During the
repeats the workload watches its own processes (workloads/_pulse.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dasklab.model.files import Pause

PROCESS = "dasklab"
PULSE_S = 0.25
LATE_S = 0.5  # shorter pauses are common on a busy machine


@contextmanager
def watch_own_process() -> Iterator[list[Pause]]:
    """Yield a list that, at the end of the block, has all pauses of this process."""
    pauses: list[Pause] = []
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(pauses, stop, _clocks()), daemon=True)
    thread.start()
    try:
        yield pauses
    finally:
        stop.set()
        thread.join()


def _watch(pauses: list[Pause], stop: threading.Event, before: tuple[float, float, float]) -> None:
    while not stop.wait(PULSE_S):
        before = _note(pauses, before)
    _note(pauses, before)


def _note(pauses: list[Pause], before: tuple[float, float, float]) -> tuple[float, float, float]:
    after = _clocks()
    awake_s, cpu_s, waited_s = (round(max(0.0, new - old), 3) for new, old in zip(after, before, strict=True))
    lasted_s = awake_s - PULSE_S
    if lasted_s > LATE_S:
        pause = Pause(process=PROCESS, lasted_s=lasted_s, cpu_s=cpu_s, waited_s=waited_s, suspended_s=0.0)
        pauses.append(pause)
    return after


def _clocks() -> tuple[float, float, float]:
    """Return the clock that stands still while the machine sleeps, CPU time, and waits for a CPU."""
    waited_s = 0.0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError, ValueError):  # the thread has just ended, or the kernel lacks these statistics
            waited_s += int((thread / "schedstat").read_text(encoding="utf-8").split()[1]) / 1e9
    return time.monotonic(), time.process_time(), waited_s
