"""Tasks that are not run: each takes the time and leaves the bytes that a calibration tells of its prefix."""

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
from dasklab.sim.kernel import Host, Kernel, VirtualLoop, set_unless_done
from dasklab.sim.kernel.clock import EPOCH_S


@dataclass(frozen=True)
class Work:
    """What one task does: seconds of a core, seconds of waiting, bytes of its result."""

    cpu_s: float
    idle_s: float
    nbytes: int


Draw = Callable[[str, str], Work]  # a key and its prefix to what it does


class SimExecutor:
    """Stands for a worker's threads; how many tasks come at once is the worker's own affair.

    The first of them takes ``late_s`` longer, and each waits ``handoff_s`` for its thread. ``handed_s`` is
    what passed so far between the loop and its threads, there and, until the loop's turn comes, back.
    """

    _max_workers = 1  # asked by nobody but repr

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
        self._kernel, self._machine, self._host = kernel, machine, host
        self._draw, self._shuffle, self._late_s, self._handoff_s = draw, shuffle, late_s, handoff_s
        self.handed_s = 0.0
        self._running: dict[Callable[[], None], None] = {}
        self._stopped = False

    def simulate(
        self, loop: VirtualLoop, _: Any, task: Any, data: Any, delay_s: float
    ) -> asyncio.Future[Any]:
        """What ``worker.execute`` waits for; ``delay_s`` is what it thinks its clock must be corrected by."""
        future = loop.create_future()
        prefix = str(key_split(task.key))
        work = self._draw(str(task.key), prefix)
        result = _aliased(task, data) or Placeholder(work.nbytes)
        start = loop.clock() + self._handoff_s  # as Dask counts it: in the thread

        def done() -> None:
            del self._running[done]
            self._shuffle.ended(task.key, self._machine)
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
            future.add_done_callback(lambda _: self._handed(loop.clock() - stop))
            loop.call_soon(set_unless_done, future, message)

        idle_s, self._late_s = work.idle_s + self._late_s, 0.0

        def begin() -> None:
            self._kernel.at(self._kernel.now + idle_s, self._compute, work.cpu_s, done)

        self._kernel.at(start, self._shuffle.when_due, task.key, begin)
        return future

    def _handed(self, back_s: float) -> None:
        self.handed_s += self._handoff_s + back_s

    def _compute(self, cpu_s: float, done: Callable[[], None]) -> None:
        if not self._stopped:
            self._running[done] = None
            self._host.compute(cpu_s, done)

    def kill(self) -> None:
        """The process is gone, and its threads with it."""
        self._stopped = True
        for done in self._running:
            self._host.forget(done)

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Nothing runs here."""


def _aliased(task: Any, data: Any) -> Placeholder | None:
    """The result that a task only renames."""
    if isinstance(task, Alias):
        found = data.get(task.target)
        return found if isinstance(found, Placeholder) else None
    return None


def _epoch(seconds: float) -> float:
    return EPOCH_S + seconds
