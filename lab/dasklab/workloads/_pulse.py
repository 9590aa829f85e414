"""Detect pauses of processes during a repeat: a process was stopped or frozen, or its machine was suspended.

In the client and in each process of the cluster a thread wakes four times a second. If it wakes late, its
process could not run. What the process did meanwhile shows why:

- stopped or frozen: it used no CPU and did not wait for one;
- a computation held the interpreter (a C function that keeps the GIL): it used a CPU all the time;
- other processes took the CPU: it waited for one;
- the machine was suspended: the clock that counts suspension is ahead of the one that does not.

A blocked event loop does not keep this thread from waking. The thread is sent by value, so the cluster needs
nothing installed; it ends with the repeats.
"""

# mypy: disable-error-code="import-untyped,no-untyped-call"
from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from distributed import Client

NAME = "dasklab-pulse"
PULSE_S = 0.25
LATE_S = 0.5  # shorter pauses are common on a busy machine
Pause = dict[str, Any]


class Pulse(threading.Thread):
    """Records the pauses of its process: how long each lasted, and the CPU seconds it used and waited for."""

    def __init__(self) -> None:
        super().__init__(name=NAME, daemon=True)
        self.stopping = threading.Event()
        self.pauses: list[Pause] = []
        self._hurry, self._measured = threading.Event(), threading.Event()

    def run(self) -> None:
        before = _clocks()
        while not self.stopping.is_set():
            self._hurry.wait(PULSE_S)
            after = _clocks()
            changes = (max(0.0, new - old) for new, old in zip(after, before, strict=True))
            awake_s, running_s, cpu_s, waited_s = changes  # a thread that ended takes its waits along
            lasted_s, suspended_s = awake_s - PULSE_S, max(0.0, awake_s - running_s)
            if lasted_s > LATE_S:
                pause = {
                    "lasted_s": lasted_s,
                    "cpu_s": cpu_s,
                    "waited_s": waited_s,
                    "suspended_s": suspended_s,
                }
                self.pauses.append({key: round(value, 3) for key, value in pause.items()})
            before = after
            if self._hurry.is_set():
                self._hurry.clear()
                self._measured.set()

    def take(self) -> list[Pause]:
        """Return the pauses since the last call.

        The thread reads the clocks first: a process that has just been continued would otherwise answer
        before it has noticed its pause.
        """
        self._measured.clear()
        self._hurry.set()
        self._measured.wait(1)
        pauses, self.pauses = self.pauses, []
        return pauses


def watch(client: Client) -> None:
    """Start the thread in the client, the scheduler and all workers."""
    _start()
    client.run_on_scheduler(_start)
    client.run(_start, on_error="return")  # a worker may die meanwhile


def take(client: Client, names: dict[str, str]) -> list[Pause]:
    """Return the pauses of all processes since the last call; ``names`` are the workers' names by address."""
    answers = client.run(_take, on_error="return")
    answers = {names.get(address, address): answer for address, answer in answers.items()}
    answers |= {"client": _take(), "scheduler": client.run_on_scheduler(_take)}
    return [
        {"process": name, **pause}
        for name, answer in answers.items()
        if isinstance(answer, list)
        for pause in answer
    ]


def end(client: Client) -> None:
    """Stop the thread in all processes."""
    _end()
    client.run_on_scheduler(_end)
    client.run(_end, on_error="return")


def _pulse() -> Any:
    """Return this process's thread. There is one, even if several workers share the process."""
    return next((thread for thread in threading.enumerate() if thread.name == NAME), None)


def _start() -> None:
    if _pulse() is None:
        Pulse().start()


def _take() -> list[Pause]:
    pulse = _pulse()
    return pulse.take() if pulse else []


def _end() -> None:
    if pulse := _pulse():
        pulse.stopping.set()


def _clocks() -> tuple[float, float, float, float]:
    """Return the clocks with and without suspension, the CPU time, and the threads' waits for a CPU."""
    waited_s = 0.0
    for thread in Path("/proc/self/task").iterdir():  # any of them may hold the interpreter
        with suppress(OSError, ValueError):  # the thread has just ended, or the kernel lacks these statistics
            waited_s += int((thread / "schedstat").read_text(encoding="utf-8").split()[1]) / 1e9
    return time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic(), time.process_time(), waited_s
