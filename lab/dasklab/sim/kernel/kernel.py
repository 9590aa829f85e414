"""The simulation kernel: virtual time, a heap of planned actions, and a digest of what happened.

Nothing in a simulation runs by itself. Whoever wants something to happen later plans an action; the kernel
takes the earliest one off the heap, sets the clock to its time and calls it. Actions planned for the same
time run in the order in which they were planned, so a simulation is deterministic.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any, Protocol


class HungError(Exception):
    """The awaited condition cannot become true: nothing is planned any more, or the time limit has passed."""


class LocalClock(Protocol):
    """A process in the middle of its turn: its clock is ahead of the kernel's by the CPU time it has used."""

    def clock(self) -> float: ...


class Kernel:
    """The clock and the planned actions of one simulation. All times are seconds of virtual time.

    Attributes:
        now: the time of the action that is being executed.
        random: the dice of the network; seeded, so that a simulation can be repeated.
        running: the process whose turn is being executed, if any.
    """

    def __init__(self, seed: int = 0, limit_s: float = 86_400) -> None:
        self.now = 0.0
        self._limit_s = limit_s
        self.random = Random(seed)
        self.running: LocalClock | None = None
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self._log = blake2b(digest_size=16)

    def clock(self) -> float:
        """Return the time as the running process sees it, or the kernel's own between turns."""
        return self.now if self.running is None else self.running.clock()

    def at(self, when: float, action: Callable[..., None], *args: Any) -> None:
        """Plan an action. A time in the past means now."""
        heapq.heappush(self._heap, (max(when, self.now), next(self._numbers), action, args))

    def run_until(self, condition: Callable[[], bool]) -> bool:
        """Execute actions until ``condition`` holds.

        Returns:
            False if it can no longer become true: the heap is empty, or the time limit has passed (timers
            that re-arm themselves would otherwise go on for ever).
        """
        while not condition():
            if not self._heap or self.now > self._limit_s:
                return False
            self.now, _, action, args = heapq.heappop(self._heap)
            action(*args)
        return True

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Execute actions until ``condition`` holds.

        Raises:
            HungError: it can no longer become true.
        """
        if not self.run_until(condition):
            raise HungError

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass. This is what ``time.sleep`` calls in a simulation."""
        elapsed: list[bool] = []
        self.at(self.now + seconds, elapsed.append, True)
        self.wait_for(lambda: bool(elapsed))

    def log(self, *entry: object) -> None:
        """Add an entry to the digest, with the current time."""
        self._log.update(f"{self.now!r} {entry!r}\n".encode())

    def digest(self) -> str:
        """Return the hash of all entries. Equal digests mean equal events at equal times."""
        return self._log.hexdigest()
