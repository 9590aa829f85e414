"""An event loop in virtual time. Each simulated process has one; it is busy for as long as its handles cost.

The loop runs whole turns, as asyncio does: it runs everything that is due, then looks at its queue again. A
turn is not pre-empted. What arrives during a turn waits for its end, as it would wait in a selector.
"""

# mypy: disable-error-code="override,assignment"
from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from dasklab.sim.kernel.host import Host
from dasklab.sim.kernel.kernel import Kernel

TIMER_TOLERANCE_S = 1e-9  # timers may fire this much early: sums of floats are not exact
NEVER = float("inf")


def resolve(future: asyncio.Future[Any], result: Any) -> None:
    """Set a future's result, unless the future was cancelled meanwhile."""
    if not future.done():
        future.set_result(result)


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process.

    Attributes:
        errors: contexts of exceptions that tasks and callbacks raised and nobody retrieved.
        busy_s: CPU seconds that its turns have cost.
    """

    def __init__(self, kernel: Kernel, host: Host) -> None:
        self._kernel, self._host = kernel, host
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._free_at = 0.0  # end of the last turn; within a turn, of the last handle
        self._charged = 0.0  # what the running handle has cost since then
        self._wake_at = NEVER
        self._closed = False
        self.errors: list[dict[str, Any]] = []
        self.busy_s = 0.0

    @classmethod
    def create(cls, kernel: Kernel, host: Host) -> VirtualLoop:
        """Create a loop. Type checkers reject ``VirtualLoop(...)``: it lacks files, sockets, signals."""
        return cls(kernel, host)

    # --- a turn -------------------------------------------------------------------------------------------

    def clock(self) -> float:
        """Return the time within a turn: what the turn has cost so far has passed."""
        return self._free_at + self._charged

    def charge(self, seconds: float) -> None:
        """Add to the cost of the running handle."""
        self._charged += seconds

    def _plan(self) -> None:
        """Plan to wake for the first handle or timer that is due."""
        if self._kernel.running is self or self._closed:
            return
        when = self._kernel.now if self._ready else self._timers[0][0] if self._timers else NEVER
        when = max(when, self._free_at)
        if when < self._wake_at:
            self._wake_at = when
            self._kernel.at(when, self._wake, when)

    def _wake(self, planned: float) -> None:
        if planned != self._wake_at or self._closed:
            return
        now = self._kernel.now
        self._wake_at = max(self._free_at, self._host.core_free_at())
        if self._wake_at > now:
            self._kernel.at(self._wake_at, self._wake, self._wake_at)
            return
        self._wake_at = NEVER
        self._turn(now)
        self._plan()

    def _turn(self, now: float) -> None:
        self._free_at = now
        while self._timers and self._timers[0][0] <= now + TIMER_TOLERANCE_S:
            self._ready.append(heapq.heappop(self._timers)[2])
        self._kernel.running = self
        asyncio.events._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
                    self._free_at += self._charged
                    self._charged = 0.0
        finally:
            asyncio.events._set_running_loop(None)
            self._kernel.running = None
        self.busy_s += self._free_at - now
        self._host.occupy(self._free_at - now)

    # --- the part of asyncio's interface that Dask uses -----------------------------------------------------

    def time(self) -> float:
        return self._kernel.clock()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._plan()
        return handle

    call_soon_threadsafe = call_soon  # there is one thread

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        self._plan()
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        coroutine: Coroutine[Any, Any, Any] = coro
        if context is None:
            return asyncio.Task(coroutine, loop=self, name=name)
        task: asyncio.Task[Any] = context.run(asyncio.Task, coroutine, loop=self, name=name)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Let an executor that has ``simulate`` take its time; run any other call at once, in the loop."""
        if hasattr(executor, "simulate"):
            simulated: asyncio.Future[Any] = executor.simulate(self, func, *args)
            return simulated
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - an executor hands every exception to the waiter
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Run nothing from now on, whatever is still planned."""
        self._closed = True

    def get_debug(self) -> bool:
        return False  # asyncio's debug mode reads the real clock

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer stays in the heap until it is due."""
