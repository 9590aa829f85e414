"""A machine's cores: event loops come first and queue for one; tasks share what is left as a fluid.

So does Linux, about: what wakes up often and briefly pre-empts what computes for long. Without a number of
cores nobody waits for one. A part of a core is one that other work has for the rest of the time: it is not
missed until all are wanted.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from dasklab.sim.kernel.kernel import Kernel


class Host:
    """Cores and the tasks on them. Each task has received ``self._given`` seconds since it came."""

    def __init__(self, kernel: Kernel, cores: float | None = None) -> None:
        self._kernel, self._cores = kernel, cores
        whole = math.ceil(cores or 0)
        self._free_at = [0.0] * whole
        self._others = whole / cores - 1 if cores else 0.0  # seconds that a core is others' for each of ours
        self._tasks: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._given = 0.0
        self._since = 0.0
        self._plan = 0

    def core_free_at(self) -> float:
        """When an event loop finds a core."""
        return self._free_at[0] if self._free_at else 0.0

    def occupy(self, seconds: float) -> None:
        """An event loop takes so much of a core from now on; where all are busy, tasks lose it."""
        if self._cores is None or not seconds:
            return
        heapq.heapreplace(self._free_at, self._kernel.now + seconds * (1 + self._others))
        if len(self._tasks) >= self._cores:
            self._given -= seconds / len(self._tasks)

    def compute(self, seconds: float, done: Callable[[], None]) -> None:
        """Call ``done`` when a task has had so many seconds of a core."""
        self._advance()
        heapq.heappush(self._tasks, (self._given + seconds, next(self._numbers), done))
        self._replan()

    def forget(self, done: Callable[[], None]) -> None:
        """A task ends before its time, unnoticed; it leaves its core to the others."""
        self._advance()
        self._tasks = [task for task in self._tasks if task[2] is not done]
        heapq.heapify(self._tasks)
        self._replan()

    def _speed(self) -> float:
        return 1.0 if self._cores is None else min(1.0, self._cores / len(self._tasks))

    def _advance(self) -> None:
        if self._tasks:
            self._given += (self._kernel.now - self._since) * self._speed()
        self._since = self._kernel.now

    def _replan(self) -> None:
        self._plan += 1
        if self._tasks:
            left = max(0.0, self._tasks[0][0] - self._given)
            self._kernel.at(self._kernel.now + left / self._speed(), self._look, self._plan)

    def _look(self, plan: int) -> None:
        """Is the first task over? An event loop may have come in between: then it is planned again."""
        if plan != self._plan:
            return
        self._advance()
        over = []
        while self._tasks and self._tasks[0][0] <= self._given + 1e-9:
            over.append(heapq.heappop(self._tasks)[2])
        self._replan()
        for done in over:
            done()
