"""One direction of a TCP connection: messages leave one after the other and arrive in that order.

Theory of operation
-------------------
A message is sent in one of two ways:

    small   Below 8 KiB, or nothing limits the path. The message takes its serialisation, the queues in front
            of it and the propagation delay. It occupies no capacity.
    bulk    The message becomes a flow (module ``fluid``). The messages behind it wait until its last byte has
            left.

Loss bounds the rate of a flow (Mathis' formula), and makes a short message wait for the retransmission timer.
Slow start costs round trips where the round trip is long.

When a link on the path is cut, nothing arrives. TCP notices by its retransmission timer: it fires once after
the oldest unacknowledged segment, then after twice that time, and so on. Until it fires after the link is up
again the channel is ``_silent``: nothing new leaves, and what was in flight is kept in ``_lost``. Then
everything is sent again, in order.
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
LONG_RTT_S = 1e-3  # below it slow start is over before it matters
FIRST_RTO_S = 1.0  # Linux, before a round trip was measured: the timer of a connection request
MIN_RTO_S = 0.2  # Linux
MATHIS = math.sqrt(1.5)  # constant of the rate bound under loss, M. Mathis et al., 1997
FAST_RETRANSMIT_SEGMENTS = 4  # a loss with fewer segments behind it is noticed by the timer only

Deliver = Callable[[], None]


class Channel:
    """Messages from one machine to another. They arrive in the order in which they were sent."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network, self._kernel = network, network.kernel
        self._path = network.path(source, target)
        self.ends = (source, target)
        self._waiting: deque[tuple[int, Deliver, float]] = deque()
        self._lost: list[tuple[int, Deliver]] = []  # left, and did not arrive
        self._flow: Flow | None = None
        self._in_flight: deque[float] = deque()  # when each message in flight left
        self._silent = False
        self._rtt_known = False  # something arrived, so the sender has measured a round trip
        self._generation = 0  # raised by ``drop``: messages handed over before it are void
        self._free_at = 0.0
        self._last_arrival = 0.0

    def send(self, when: float, nbytes: int, deliver: Deliver, pace: float = math.inf) -> None:
        """Hand over a message.

        Args:
            when: time (now or later) at which the sender starts to write it.
            nbytes: its size on the wire, without headers of lower layers.
            deliver: called when all of it has arrived.
            pace: bytes per second at which the sender writes; the message leaves while it is written.
        """
        self._kernel.at(when, self._enqueue, self._generation, nbytes, deliver, pace)

    def drop(self) -> None:
        """Discard what has not left yet, and what was handed over for later."""
        self._generation += 1
        self._waiting.clear()
        self._lost.clear()
        flow, self._flow = self._flow, None
        if flow is not None and self in self._network.flowing:
            del self._network.flowing[self]
            self._network.fluid.stop(flow)

    def _enqueue(self, generation: int, nbytes: int, deliver: Deliver, pace: float) -> None:
        if generation == self._generation:
            self._waiting.append((nbytes, deliver, pace))
            self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and self._flow is None and not self._check_silence():
            nbytes, deliver, pace = self._waiting.popleft()
            self._network.sent_bytes += nbytes
            self._network.messages += 1
            if nbytes < SMALL_BYTES or not (self._path.limited_by or self._path.loss):
                self._send_small(nbytes, deliver, pace)
            else:
                self._send_bulk(nbytes, deliver, pace)

    def _send_small(self, nbytes: int, deliver: Deliver, pace: float) -> None:
        path = self._path
        self._free_at = max(self._free_at, self._kernel.now) + nbytes / min(path.rate, pace)
        queueing_s = path.queueing_s(self._kernel.now)
        self._plan_arrival(self._free_at + queueing_s + self._loss_timeout_s(nbytes), nbytes, deliver)

    # --- bulk data -----------------------------------------------------------------------------------------

    def _send_bulk(self, nbytes: int, deliver: Deliver, pace: float) -> None:
        path = self._path
        queueing_s = path.queueing_s(self._kernel.now)

        def on_done() -> None:
            self._flow = None
            del self._network.flowing[self]
            self._free_at = self._kernel.now
            self._plan_arrival(self._kernel.now + queueing_s, nbytes, deliver)
            self._send_waiting()

        self._flow = Flow(nbytes, path.limited_by, path.loads, on_done, min(self._loss_bound(), pace))
        self._slow_start_then_flow(self._flow)

    def _slow_start_then_flow(self, flow: Flow) -> None:
        wait_s, sent_bytes = self._slow_start(flow.remaining)
        flow.remaining -= sent_bytes
        self._kernel.at(max(self._free_at, self._kernel.now) + wait_s, self._start_flow, flow)

    def _start_flow(self, flow: Flow) -> None:
        if flow is self._flow and not self._check_silence():
            self._network.flowing[self] = None
            self._network.fluid.start(flow)

    def cut(self) -> None:
        """Stop the running flow: a link on its path went down. (Called by the network.)"""
        assert self._flow is not None
        del self._network.flowing[self]
        self._network.fluid.stop(self._flow)
        self._check_silence()

    def _slow_start(self, nbytes: float) -> tuple[float, float]:
        """Return the seconds until the window fills the path, and the bytes that have left by then."""
        path = self._path
        if path.rtt_s < LONG_RTT_S:
            return 0.0, 0.0
        target = min(nbytes, path.rate * path.rtt_s)
        rounds = max(0, math.ceil(math.log2(target / FIRST_WINDOW_BYTES + 1)) - 1)
        return rounds * path.rtt_s, max(0.0, min(nbytes - 1.0, (2**rounds - 1) * FIRST_WINDOW_BYTES))

    def _loss_bound(self) -> float:
        """Return the bytes per second that loss allows: MSS / RTT * sqrt(3 / 2p)."""
        if not self._path.loss:
            return math.inf
        return SEGMENT_BYTES / self._path.rtt_s * MATHIS / math.sqrt(self._path.loss)

    def _loss_timeout_s(self, nbytes: int) -> float:
        """Return how long a short message waits for the timer, if the dice say that it loses a segment."""
        segments = -(-nbytes // SEGMENT_BYTES)
        if not self._path.loss or segments >= FAST_RETRANSMIT_SEGMENTS:
            return 0.0
        lost = self._kernel.random.random() < 1 - (1 - self._path.loss) ** segments
        return max(MIN_RTO_S, 2 * self._path.rtt_s) if lost else 0.0

    # --- arrival, or a cut link ----------------------------------------------------------------------------

    def _plan_arrival(self, when: float, nbytes: int, deliver: Deliver) -> None:
        """Plan the arrival of a message that left the sender's queues: never before an earlier message."""
        self._last_arrival = max(self._last_arrival, when + self._path.propagation_s(self._kernel.random))
        self._in_flight.append(self._kernel.now)
        self._kernel.at(self._last_arrival, self._deliver, nbytes, deliver)

    def _deliver(self, nbytes: int, deliver: Deliver) -> None:
        silent = self._check_silence()
        self._in_flight.popleft()
        if silent:
            self._lost.append((nbytes, deliver))
            return
        self._rtt_known = True
        self._kernel.log(*self.ends, nbytes)
        deliver()

    def _check_silence(self) -> bool:
        """Return whether the channel is silent. If a link has gone down, silence it and plan the timer."""
        if self._silent:
            return True
        if self.ends[0] == self.ends[1] or self._network.up_at(*self.ends) <= self._kernel.now:
            return False
        self._silent = True
        self._plan_retransmission(self._in_flight[0] if self._in_flight else self._kernel.now)
        return True

    def _plan_retransmission(self, since: float) -> None:
        """Plan when the timer first fires with the link up: 1, 3, 7 ... times its value after ``since``."""
        timeout_s, fires_at = self._rto_s(), since
        while fires_at < self._network.up_at(*self.ends):
            fires_at += timeout_s
            timeout_s *= 2
        self._kernel.at(fires_at, self._retransmit, since)

    def _retransmit(self, since: float) -> None:
        if self._network.up_at(*self.ends) > self._kernel.now:  # the link was cut again
            self._plan_retransmission(since)
            return
        self._silent = False
        lost, self._lost = self._lost, []
        for nbytes, deliver in lost:
            self._plan_arrival(self._kernel.now, nbytes, deliver)
        if self._flow is not None:
            self._slow_start_then_flow(self._flow)
        self._send_waiting()

    def _rto_s(self) -> float:
        return max(MIN_RTO_S, 2 * self._path.rtt_s) if self._rtt_known else FIRST_RTO_S
