"""An event loop in virtual time: one per simulated process, busy for as long as its handles cost.

It runs whole turns, as asyncio does: all that is due, then it looks at its queue again. A turn is not
pre-empted; what arrives meanwhile waits for its end, as behind a selector.
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

DUE_S = 1e-9  # a timer is due so much early: sums of floats are not exact
NEVER = float("inf")


def set_unless_done(future: asyncio.Future[Any], result: Any) -> None:
    """Give a future its result, unless it was cancelled meanwhile."""
    if not future.done():
        future.set_result(result)


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process.

    ``errors`` are what tasks and callbacks raised and nobody took; ``busy_s`` is what its turns have cost.
    """

    def __init__(self, kernel: Kernel, host: Host) -> None:
        self._kernel, self._host = kernel, host
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._free_at = 0.0
        self._charged = 0.0
        self._wake_at = NEVER
        self._closed = False
        self.errors: list[dict[str, Any]] = []
        self.busy_s = 0.0

    @classmethod
    def of(cls, kernel: Kernel, host: Host) -> VirtualLoop:
        """A loop: what it lacks of asyncio's interface (files, sockets, signals) has no place here."""
        return cls(kernel, host)

    # --- a turn -------------------------------------------------------------------------------------------

    def clock(self) -> float:
        """The time within a turn: what has been computed so far has passed."""
        return self._free_at + self._charged

    def charge(self, seconds: float) -> None:
        """What runs now costs this much of the process's time."""
        self._charged += seconds

    def _plan(self) -> None:
        """Make sure to be woken for what comes first."""
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
        while self._timers and self._timers[0][0] <= now + DUE_S:
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

    # --- asyncio's interface, as far as it is used ---------------------------------------------------------

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self._kernel.clock()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        """At the next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._plan()
        return handle

    call_soon_threadsafe = call_soon  # there is one thread

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """After so many seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """At that time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        self._plan()
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        """Run a coroutine from the next turn on."""
        task: Coroutine[Any, Any, Any] = coro
        if context is None:
            return asyncio.Task(task, loop=self, name=name)
        made: asyncio.Task[Any] = context.run(asyncio.Task, task, loop=self, name=name)
        return made

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """A simulated executor (it has ``simulate``) takes its time; any other runs at once, in the loop."""
        if hasattr(executor, "simulate"):
            future: asyncio.Future[Any] = executor.simulate(self, func, *args)
            return future
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - as executors do: whoever waits for it gets it
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Remember what nobody took."""
        self.errors.append(context)

    def is_running(self) -> bool:
        """In its own time, always."""
        return not self._closed

    def is_closed(self) -> bool:
        """Was it closed?"""
        return self._closed

    def close(self) -> None:
        """Do nothing any more, whatever is still to come."""
        self._closed = True

    def get_debug(self) -> bool:
        """No: asyncio's debugging looks at the real clock."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer stays where it is until it is due."""
