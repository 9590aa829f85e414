"""Notices that a process stood still during a run: stopped, frozen, or on a machine that was suspended.

In each process of the cluster, and in the client, a thread of its own wakes four times a second. If it
wakes late, its process was kept from running. What the process did meanwhile tells why:

- stopped or frozen: it used no CPU and did not wait for one;
- the interpreter was held by a computation (a C function that keeps the GIL): it used a CPU all the time;
- other processes took the CPU: it waited for one;
- the machine was suspended: the clock that goes on during suspension is ahead of the one that does not.

An event loop that is blocked, by whatever, does not keep this thread from waking. The thread travels by
value, so the cluster needs nothing installed, and ends with the runs.
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
    """Keeps the pauses of its process: how long each lasted, and which CPU seconds it used and waited for."""

    def __init__(self) -> None:
        super().__init__(name=NAME, daemon=True)
        self.ended = threading.Event()
        self.pauses: list[Pause] = []
        self._hurry, self._looked = threading.Event(), threading.Event()

    def run(self) -> None:
        """Wake again and again until told to end."""
        before = _look()
        while not self.ended.is_set():
            self._hurry.wait(PULSE_S)
            after = _look()
            changes = (max(0.0, new - old) for new, old in zip(after, before, strict=True))
            awake_s, running_s, cpu_s, waited_s = changes  # waits of a thread that ended are gone
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
                self._looked.set()

    def take(self) -> list[Pause]:
        """Return the pauses since the last call, also one that ends with this call.

        A process that was just continued may answer before this thread has looked at the clocks.
        """
        self._looked.clear()
        self._hurry.set()
        self._looked.wait(1)
        pauses, self.pauses = self.pauses, []
        return pauses


def watch(client: Client) -> None:
    """Watch the client, the scheduler and all workers from now on."""
    _start()
    client.run_on_scheduler(_start)
    client.run(_start, on_error="return")  # a worker that dies meanwhile is not our business


def take(client: Client, names: dict[str, str]) -> list[Pause]:
    """Return all processes' pauses since the last call; ``names`` are the workers' by address."""
    answers = client.run(_take, on_error="return")
    answers = {names.get(address, address): answer for address, answer in answers.items()}
    answers |= {"client": _take(), "scheduler": client.run_on_scheduler(_take)}
    return [
        {"process": name, **pause}
        for name, found in answers.items()
        if isinstance(found, list)
        for pause in found
    ]


def end(client: Client) -> None:
    """Watch no more."""
    _end()
    client.run_on_scheduler(_end)
    client.run(_end, on_error="return")


def _pulse() -> Any:
    """This process's thread: one, even if several workers share the process."""
    return next((thread for thread in threading.enumerate() if thread.name == NAME), None)


def _start() -> None:
    if _pulse() is None:
        Pulse().start()


def _take() -> list[Pause]:
    pulse = _pulse()
    return pulse.take() if pulse else []


def _end() -> None:
    if pulse := _pulse():
        pulse.ended.set()


def _look() -> tuple[float, float, float, float]:
    """The clocks with and without suspension, the process's CPU time, its threads' waits for a CPU."""
    waited_s = 0.0
    for thread in Path("/proc/self/task").iterdir():  # whichever holds the interpreter
        with suppress(OSError, ValueError):  # it has just ended, or a kernel without these statistics
            waited_s += int((thread / "schedstat").read_text().split()[1]) / 1e9
    return time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic(), time.process_time(), waited_s
