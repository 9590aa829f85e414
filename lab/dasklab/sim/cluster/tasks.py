"""Tasks that are not run: each takes the time and leaves the bytes of a recorded task of its prefix."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dask._task_spec import Alias
from dask.utils import key_split

from dasklab.sim.cluster.placeholder import Placeholder
from dasklab.sim.cluster.shuffle import Shuffle
from dasklab.sim.kernel import Host, Kernel, VirtualLoop, resolve
from dasklab.sim.kernel.clock import EPOCH_S


@dataclass(frozen=True)
class Work:
    """What one task does: CPU seconds, seconds of waiting, and the bytes of its result."""

    cpu_s: float
    idle_s: float
    nbytes: int


Draw = Callable[[str, str], Work]  # (key, prefix) -> the task's work


class SimExecutor:
    """Takes the place of a worker's thread pool. The worker itself decides how many tasks run at once.

    A task passes three stages: the handoff to its thread, waiting (``idle_s``), computing (``cpu_s``).

    Attributes:
        handoff_total_s: seconds that all tasks so far spent between the event loop and their threads: the
            handoff, and after the task the wait until the loop takes the result.
    """

    _max_workers = 1  # read by Dask's repr

    def __init__(
        self,
        kernel: Kernel,
        machine: str,
        host: Host,
        draw: Draw,
        shuffle: Shuffle,
        late_s: float,
        handoff_s: float,
    ) -> None:
        """Create the executor of one worker.

        Args:
            kernel: the simulation's.
            machine: the worker's name.
            host: the cores that its tasks compute on.
            draw: returns what a task does.
            shuffle: sends what a peer-to-peer transfer task gives away.
            late_s: how much longer the first task takes.
            handoff_s: how long each task waits for its thread.
        """
        self._kernel, self._machine, self._host = kernel, machine, host
        self._draw, self._shuffle, self._late_s, self._handoff_s = draw, shuffle, late_s, handoff_s
        self.handoff_total_s = 0.0
        self._computing: dict[Callable[[], None], None] = {}
        self._stopped = False

    def simulate(
        self, loop: VirtualLoop, _: Any, task: Any, data: Any, delay_s: float
    ) -> asyncio.Future[Any]:
        """Start a task; the future's result is the message that ``Worker.execute`` expects from its thread.

        Args:
            loop: the worker's event loop.
            task: the task's specification.
            data: its dependencies' results by key.
            delay_s: by how much the worker's clock is behind the scheduler's, as the worker believes.
        """
        future = loop.create_future()
        work = self._draw(str(task.key), str(key_split(task.key)))
        result = _aliased(task, data) or Placeholder(work.nbytes)
        start = loop.clock() + self._handoff_s  # Dask reads this clock in the task's thread

        def on_done() -> None:
            del self._computing[on_done]
            self._shuffle.task_ended(task.key, self._machine)
            message = {
                "op": "task-finished",
                "status": "OK",
                "result": result,
                "nbytes": result.nbytes_,
                "type": Placeholder,
                "start": _epoch(start) + delay_s,
                "stop": _epoch(self._kernel.now) + delay_s,
                "thread": 1,
            }
            stop = self._kernel.now
            future.add_done_callback(lambda _: self._add_handoff(loop.clock() - stop))
            loop.call_soon(resolve, future, message)

        idle_s, self._late_s = work.idle_s + self._late_s, 0.0

        def begin() -> None:
            self._kernel.at(self._kernel.now + idle_s, self._compute, work.cpu_s, on_done)

        self._kernel.at(start, self._shuffle.when_ready, task.key, begin)
        return future

    def kill(self) -> None:
        """End all tasks: the process is gone, and its threads with it."""
        self._stopped = True
        for on_done in self._computing:
            self._host.cancel(on_done)

    def shutdown(self, *_: Any, **__: Any) -> None:
        pass

    def _add_handoff(self, back_s: float) -> None:
        self.handoff_total_s += self._handoff_s + back_s

    def _compute(self, cpu_s: float, on_done: Callable[[], None]) -> None:
        if not self._stopped:
            self._computing[on_done] = None
            self._host.compute(cpu_s, on_done)


def _aliased(task: Any, data: Any) -> Placeholder | None:
    """Return the result that a task only renames, if it is such a task."""
    if isinstance(task, Alias):
        result = data.get(task.target)
        return result if isinstance(result, Placeholder) else None
    return None


def _epoch(seconds: float) -> float:
    return EPOCH_S + seconds
