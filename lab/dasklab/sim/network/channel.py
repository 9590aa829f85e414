"""One direction of a TCP connection: messages leave one after the other and arrive in that order.

Small ones take their serialisation, what stands before them in full queues, and the way. Large ones are
flows. Where a link is cut nothing arrives; then all waits for the sender's timer, which doubles each time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from dasklab.sim.network.fluid import Flow
from dasklab.sim.network.network import Network

SMALL_BYTES = 8192
SEGMENT_BYTES = 1448
FIRST_WINDOW_BYTES = 10 * SEGMENT_BYTES
LONG_RTT_S = 1e-3  # below, slow start is over before it matters
FIRST_RTO_S = 1.0  # Linux's, until a round trip was measured: of the segment that asks for a connection
LEAST_RTO_S = 0.2  # Linux's
MATHIS = math.sqrt(1.5)  # of the rate that a loss allows: M. Mathis and others, 1997
FAST_RETRANSMIT = 4  # segments that must follow a lost one, or it is missed only by the timer

Deliver = Callable[[], None]


class Channel:
    """Messages from one machine to another, in order."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network, self._kernel = network, network.kernel
        self._path = network.path(source, target)
        self.ends = (source, target)
        self._waiting: deque[tuple[int, Deliver, float]] = deque()
        self._lost: list[tuple[int, Deliver]] = []  # they left, and did not arrive
        self._flow: Flow | None = None
        self._flying: deque[float] = deque()  # when what is on its way left
        self._silent = False
        self._heard = False  # did anything get through?
        self._life = 0  # what was handed over before it was dropped is of an earlier one
        self._free_at = 0.0
        self._last = 0.0

    def send(self, when: float, nbytes: int, deliver: Deliver, pace: float = math.inf) -> None:
        """Hand over a message at a time from now on; ``deliver`` is called when all of it is there.

        From then on it is written at ``pace``, in bytes per second, and leaves while it is.
        """
        self._kernel.at(when, self._take, self._life, nbytes, deliver, pace)

    def drop(self) -> None:
        """Forget what has not left yet, and what was handed over for later."""
        self._life += 1
        self._waiting.clear()
        self._lost.clear()
        flow, self._flow = self._flow, None
        if flow is not None and self in self._network.flowing:
            del self._network.flowing[self]
            self._network.fluid.halt(flow)

    def _take(self, life: int, nbytes: int, deliver: Deliver, pace: float) -> None:
        if life == self._life:
            self._waiting.append((nbytes, deliver, pace))
            self._next()

    def _next(self) -> None:
        while self._waiting and self._flow is None and not self._broken():
            nbytes, deliver, pace = self._waiting.popleft()
            self._network.sent_bytes += nbytes
            self._network.messages += 1
            if nbytes < SMALL_BYTES or not (self._path.held_by or self._path.loss):
                self._small(nbytes, deliver, pace)
            else:
                self._start(nbytes, deliver, pace)

    def _small(self, nbytes: int, deliver: Deliver, pace: float) -> None:
        path = self._path
        self._free_at = max(self._free_at, self._kernel.now) + nbytes / min(path.rate, pace)
        self._arrive(
            self._free_at + path.standing_s(self._kernel.now) + self._timeout_s(nbytes), nbytes, deliver
        )

    # --- bulk data -----------------------------------------------------------------------------------------

    def _start(self, nbytes: int, deliver: Deliver, pace: float) -> None:
        path = self._path
        queued_s = path.standing_s(self._kernel.now)

        def done() -> None:
            self._flow = None
            del self._network.flowing[self]
            self._free_at = self._kernel.now
            self._arrive(self._kernel.now + queued_s, nbytes, deliver)
            self._next()

        self._flow = Flow(nbytes, path.held_by, path.loads, done, min(self._cap(), pace))
        self._accelerate(self._flow)

    def _accelerate(self, flow: Flow) -> None:
        wait_s, already = self._slow_start(flow.left)
        flow.left -= already
        self._kernel.at(max(self._free_at, self._kernel.now) + wait_s, self._run, flow)

    def _run(self, flow: Flow) -> None:
        if flow is self._flow and not self._broken():
            self._network.flowing[self] = None
            self._network.fluid.start(flow)

    def cut(self) -> None:
        """A link on the way of the bulk data is down."""
        assert self._flow is not None
        del self._network.flowing[self]
        self._network.fluid.halt(self._flow)
        self._broken()

    # --- arriving, or not ----------------------------------------------------------------------------------

    def _arrive(self, when: float, nbytes: int, deliver: Deliver) -> None:
        """Never before what was sent earlier, however the way's length wavers."""
        self._last = max(self._last, when + self._path.way_s(self._kernel.random))
        self._flying.append(self._kernel.now)
        self._kernel.at(self._last, self._deliver, nbytes, deliver)

    def _deliver(self, nbytes: int, deliver: Deliver) -> None:
        broken = self._broken()
        self._flying.popleft()
        if broken:
            self._lost.append((nbytes, deliver))
            return
        self._heard = True
        self._kernel.note(*self.ends, nbytes)
        deliver()

    def _broken(self) -> bool:
        """Does nothing arrive? Then the timer of what is longest on its way decides how long."""
        if self._silent:
            return True
        if self.ends[0] == self.ends[1] or self._network.up_at(*self.ends) <= self._kernel.now:
            return False
        self._silent = True
        self._wait_for_timer(self._flying[0] if self._flying else self._kernel.now)
        return True

    def _wait_for_timer(self, since: float) -> None:
        """It fires after once, three, seven times itself: what is sent again when the link is up arrives."""
        wait_s, again_at = self._rto_s(), since
        while again_at < self._network.up_at(*self.ends):
            again_at += wait_s
            wait_s *= 2
        self._kernel.at(again_at, self._retransmit, since)

    def _retransmit(self, since: float) -> None:
        if self._network.up_at(*self.ends) > self._kernel.now:  # it was cut once more
            self._wait_for_timer(since)
            return
        self._silent = False
        lost, self._lost = self._lost, []
        for nbytes, deliver in lost:
            self._arrive(self._kernel.now, nbytes, deliver)
        if self._flow is not None:
            self._accelerate(self._flow)
        self._next()

    def _rto_s(self) -> float:
        return max(LEAST_RTO_S, 2 * self._path.rtt_s) if self._heard else FIRST_RTO_S

    def _slow_start(self, nbytes: float) -> tuple[float, float]:
        """Round trips until the window is as large as the link, and what has left by then."""
        path = self._path
        if path.rtt_s < LONG_RTT_S:
            return 0.0, 0.0
        enough = min(nbytes, path.rate * path.rtt_s)
        rounds = max(0, math.ceil(math.log2(enough / FIRST_WINDOW_BYTES + 1)) - 1)
        return rounds * path.rtt_s, max(0.0, min(nbytes - 1.0, (2**rounds - 1) * FIRST_WINDOW_BYTES))

    def _cap(self) -> float:
        """What loss leaves of the rate: MSS / RTT * sqrt(3 / 2 p)."""
        if not self._path.loss:
            return math.inf
        return SEGMENT_BYTES / self._path.rtt_s * MATHIS / math.sqrt(self._path.loss)

    def _timeout_s(self, nbytes: int) -> float:
        """A short message that loses a segment waits for the timer: nothing follows that would tell."""
        segments = -(-nbytes // SEGMENT_BYTES)
        if not self._path.loss or segments >= FAST_RETRANSMIT:
            return 0.0
        lost = self._kernel.random.random() < 1 - (1 - self._path.loss) ** segments
        return max(LEAST_RTO_S, 2 * self._path.rtt_s) if lost else 0.0
