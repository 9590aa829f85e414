"""The cores of a simulated machine, shared by event loops and by tasks.

Theory of operation
-------------------
Linux lets a process that wakes often and briefly pre-empt one that computes for long. The model therefore
gives event loops priority: a loop's turn occupies one whole core, and turns queue for cores. Tasks share what
is left as a fluid: with n tasks on c cores each task advances at min(1, c / n) seconds per second.

All tasks advance at the same speed, so one number is enough: ``_served_s`` is how many CPU seconds any task
has received that has been there since the beginning. A task that needs s seconds ends when ``_served_s`` has
grown by s. When an event loop takes a core while all are busy, ``_served_s`` is set back by the tasks' loss.

Without a number of cores nobody ever waits for one. The number may be fractional: 1.5 means that other
processes take a core half of the time, which matters only when both cores are in demand.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

from dasklab.sim.kernel.kernel import Kernel


class Host:
    """The cores of one machine and the tasks that compute on them."""

    def __init__(self, kernel: Kernel, cores: float | None = None) -> None:
        self._kernel, self._cores = kernel, cores
        whole = math.ceil(cores or 0)
        self._free_at = [0.0] * whole  # a heap: when each core's current turn ends
        self._foreign_ratio = whole / cores - 1 if cores else 0.0  # foreign seconds per own second
        self._tasks: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._served_s = 0.0
        self._served_at = 0.0
        self._plan = 0

    def core_free_at(self) -> float:
        """Return when an event loop can have a core."""
        return self._free_at[0] if self._free_at else 0.0

    def occupy(self, seconds: float) -> None:
        """Give an event loop a core from now on. If all cores are busy, the tasks lose that time."""
        if self._cores is None or not seconds:
            return
        heapq.heapreplace(self._free_at, self._kernel.now + seconds * (1 + self._foreign_ratio))
        if len(self._tasks) >= self._cores:
            self._served_s -= seconds / len(self._tasks)

    def compute(self, seconds: float, on_done: Callable[[], None]) -> None:
        """Start a task; call ``on_done`` when it has received this many CPU seconds."""
        self._advance()
        heapq.heappush(self._tasks, (self._served_s + seconds, next(self._numbers), on_done))
        self._replan()

    def cancel(self, on_done: Callable[[], None]) -> None:
        """Remove a running task, named by its callback, which is not called. Others get its share."""
        self._advance()
        self._tasks = [task for task in self._tasks if task[2] is not on_done]
        heapq.heapify(self._tasks)
        self._replan()

    def _speed(self) -> float:
        return 1.0 if self._cores is None else min(1.0, self._cores / len(self._tasks))

    def _advance(self) -> None:
        if self._tasks:
            self._served_s += (self._kernel.now - self._served_at) * self._speed()
        self._served_at = self._kernel.now

    def _replan(self) -> None:
        """Plan the end of the task that ends first; plans made before are void."""
        self._plan += 1
        if self._tasks:
            remaining_s = max(0.0, self._tasks[0][0] - self._served_s)
            self._kernel.at(self._kernel.now + remaining_s / self._speed(), self._end_tasks, self._plan)

    def _end_tasks(self, plan: int) -> None:
        """End the tasks that are due. None is due if an event loop took time since the plan was made."""
        if plan != self._plan:
            return
        self._advance()
        callbacks = []
        while self._tasks and self._tasks[0][0] <= self._served_s + 1e-9:
            callbacks.append(heapq.heappop(self._tasks)[2])
        self._replan()
        for on_done in callbacks:
            on_done()
