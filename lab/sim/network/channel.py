"""One direction of a TCP connection: messages leave one after the other and arrive in that order.

Small ones take their serialisation, what stands before them in full queues, and the way. Large ones are
flows.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from lab.sim.network.fluid import Flow
from lab.sim.network.network import Network

SMALL_BYTES = 8192
SEGMENT_BYTES = 1448
FIRST_WINDOW_BYTES = 10 * SEGMENT_BYTES
LONG_RTT_S = 1e-3  # below, slow start is over before it matters
LEAST_RTO_S = 0.2  # Linux's
MATHIS = math.sqrt(1.5)  # of the rate that a loss allows: M. Mathis and others, 1997
FAST_RETRANSMIT = 4  # segments that must follow a lost one, or it is missed only by the timer


class Channel:
    """Messages from one machine to another, in order."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network, self._kernel = network, network.kernel
        self._path = network.path(source, target)
        self._ends = (source, target)
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._bulk = False
        self._free_at = 0.0
        self._last = 0.0

    def send(self, when: float, nbytes: int, deliver: Callable[[], None]) -> None:
        """Hand over a message at a time from now on; ``deliver`` is called when all of it is there."""
        self._kernel.at(when, self._take, nbytes, deliver)

    def _take(self, nbytes: int, deliver: Callable[[], None]) -> None:
        self._waiting.append((nbytes, deliver))
        self._next()

    def _next(self) -> None:
        while self._waiting and not self._bulk:
            nbytes, deliver = self._waiting.popleft()
            self._network.sent_bytes += nbytes
            self._network.messages += 1
            if nbytes < SMALL_BYTES or not (self._path.held_by or self._path.loss):
                self._small(nbytes, deliver)
            else:
                self._start(nbytes, deliver)

    def _small(self, nbytes: int, deliver: Callable[[], None]) -> None:
        path = self._path
        self._free_at = max(self._free_at, self._kernel.now) + nbytes / path.rate
        self._arrive(
            self._free_at + path.standing_s(self._kernel.now) + self._timeout_s(nbytes), nbytes, deliver
        )

    def _start(self, nbytes: int, deliver: Callable[[], None]) -> None:
        self._bulk = True
        wait_s, already = self._slow_start(nbytes)
        path = self._path
        queued_s = path.standing_s(self._kernel.now)

        def done() -> None:
            self._bulk = False
            self._free_at = self._kernel.now
            self._arrive(self._kernel.now + queued_s, nbytes, deliver)
            self._next()

        flow = Flow(nbytes - already, path.held_by, path.loads, done, self._cap())
        self._kernel.at(max(self._free_at, self._kernel.now) + wait_s, self._network.fluid.start, flow)

    def _arrive(self, when: float, nbytes: int, deliver: Callable[[], None]) -> None:
        """Never before what was sent earlier, however the way's length wavers."""
        self._last = max(self._last, when + self._path.way_s(self._kernel.random))
        self._kernel.at(self._last, self._deliver, nbytes, deliver)

    def _deliver(self, nbytes: int, deliver: Callable[[], None]) -> None:
        self._kernel.note(*self._ends, nbytes)
        deliver()

    def _slow_start(self, nbytes: int) -> tuple[float, float]:
        """Round trips until the window is as large as the link, and what has left by then."""
        path = self._path
        if path.rtt_s < LONG_RTT_S:
            return 0.0, 0.0
        enough = min(nbytes, path.rate * path.rtt_s)
        rounds = max(0, math.ceil(math.log2(enough / FIRST_WINDOW_BYTES + 1)) - 1)
        return rounds * path.rtt_s, min(nbytes - 1.0, (2**rounds - 1) * FIRST_WINDOW_BYTES)

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
