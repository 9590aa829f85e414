"""What happens next: a heap of actions in virtual time, and a hash of all that was said to have happened."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any, Protocol


class HungError(Exception):
    """What was waited for does not come, or not in the time that there is."""


class Running(Protocol):
    """A process within a turn: its clock is ahead of the kernel's by what it has computed so far."""

    def clock(self) -> float:
        """Seconds since the simulation began."""


class Kernel:
    """Pops the earliest action and does it; equal times in the order in which they were planned."""

    def __init__(self, seed: int = 0, limit_s: float = 86_400) -> None:
        self.now = 0.0
        self._limit_s = limit_s
        self.random = Random(seed)
        self.running: Running | None = None
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self._log = blake2b(digest_size=16)

    def clock(self) -> float:
        """The time as whoever is running sees it."""
        return self.now if self.running is None else self.running.clock()

    def at(self, when: float, action: Callable[..., None], *args: Any) -> None:
        """Plan an action; what lies in the past happens now."""
        heapq.heappush(self._heap, (max(when, self.now), next(self._numbers), action, args))

    def run(self, done: Callable[[], bool]) -> bool:
        """Go on until ``done``; False if that never comes: nothing is planned, or only timers go round."""
        while not done():
            if not self._heap or self.now > self._limit_s:
                return False
            self.now, _, action, args = heapq.heappop(self._heap)
            action(*args)
        return True

    def await_(self, done: Callable[[], bool]) -> None:
        """Go on until ``done``.

        Raises:
            HungError: that never comes.
        """
        if not self.run(done):
            raise HungError

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        over: list[bool] = []
        self.at(self.now + seconds, over.append, True)
        self.await_(lambda: bool(over))

    def note(self, *what: object) -> None:
        """Add to the log: two simulations with the same digest did the same at the same times."""
        self._log.update(f"{self.now!r} {what!r}\n".encode())

    def digest(self) -> str:
        """Hash of all that was noted so far."""
        return self._log.hexdigest()
