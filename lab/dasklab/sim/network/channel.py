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
again the channel is silent: nothing new leaves, and what would have arrived is kept. Then everything is sent
again, in order.

States
------
                    BULK_STARTS            BULK_ENDS
            OPEN  ---------------> BUSY  ------------> OPEN
             |                      |
             | PATH_CUT             | PATH_CUT
             v                      v
           SILENT                STALLED
             |                      |
             | TIMER_FIRES          | TIMER_FIRES
             v                      v
            OPEN                   BUSY

Rules for this file: the state changes only in `Channel._move`, and only along `TRANSITIONS`. The state alone
decides whether something may leave. What holds in each state:

    a flow exists exactly in BUSY and STALLED; in STALLED the fluid does not run it
    messages are kept for the timer only in SILENT and STALLED
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

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


class ChannelState(Enum):
    """What a channel does with the next message."""

    OPEN = auto()  # it leaves at once
    BUSY = auto()  # it waits for the last byte of a flow
    SILENT = auto()  # the path was cut: it waits for the timer
    STALLED = auto()  # the path was cut while a flow was leaving: it waits for the timer and for the flow


class ChannelEvent(Enum):
    BULK_STARTS = auto()
    BULK_ENDS = auto()
    PATH_CUT = auto()  # the sender cannot know; the model uses it to plan the timer
    TIMER_FIRES = auto()  # with the path up; before that the timer is only planned again
    DROPPED = auto()  # the connection's user gave up what has not left


TRANSITIONS = {
    (ChannelState.OPEN, ChannelEvent.BULK_STARTS): ChannelState.BUSY,
    (ChannelState.OPEN, ChannelEvent.PATH_CUT): ChannelState.SILENT,
    (ChannelState.OPEN, ChannelEvent.DROPPED): ChannelState.OPEN,
    (ChannelState.BUSY, ChannelEvent.BULK_ENDS): ChannelState.OPEN,
    (ChannelState.BUSY, ChannelEvent.PATH_CUT): ChannelState.STALLED,
    (ChannelState.BUSY, ChannelEvent.DROPPED): ChannelState.OPEN,
    (ChannelState.SILENT, ChannelEvent.TIMER_FIRES): ChannelState.OPEN,
    (ChannelState.SILENT, ChannelEvent.DROPPED): ChannelState.SILENT,
    (ChannelState.STALLED, ChannelEvent.TIMER_FIRES): ChannelState.BUSY,
    (ChannelState.STALLED, ChannelEvent.DROPPED): ChannelState.SILENT,
}
"""The next state. A pair that is missing cannot happen; it would be a fault of this module."""


@dataclass(eq=False)
class Message:
    """A message; ``pace`` is the bytes per second at which the sender writes it."""

    nbytes: int
    deliver: Deliver
    pace: float


class Channel:
    """Messages from one machine to another. They arrive in the order in which they were sent.

    Attributes:
        ends: the sending and the receiving machine.
        state: see above.
    """

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network, self._kernel = network, network.kernel
        self._path = network.path(source, target)
        self.ends = (source, target)
        self.state = ChannelState.OPEN
        self._handed_over: dict[Message, None] = {}  # the sender starts to write them later
        self._waiting: deque[Message] = deque()
        self._flow: Flow | None = None
        self._departures: deque[float] = deque()  # when each message in flight left, the oldest first
        self._unacknowledged: list[Message] = []  # due during a cut: the timer sends them again
        self._rto_s = FIRST_RTO_S
        self._free_at = 0.0
        self._last_arrival = 0.0

    def _move(self, event: ChannelEvent) -> None:
        self.state = TRANSITIONS[self.state, event]

    def send(self, when: float, nbytes: int, deliver: Deliver, pace: float = math.inf) -> None:
        """Hand over a message.

        Args:
            when: time (now or later) at which the sender starts to write it.
            nbytes: its size on the wire, without headers of lower layers.
            deliver: called when all of it has arrived.
            pace: bytes per second at which the sender writes; the message leaves while it is written.
        """
        message = Message(nbytes, deliver, pace)
        self._handed_over[message] = None
        self._kernel.at(when, self._enqueue, message)

    def drop(self) -> None:
        """Discard what has not left yet, and what was handed over for later."""
        self._move(ChannelEvent.DROPPED)
        self._handed_over.clear()
        self._waiting.clear()
        self._unacknowledged.clear()
        flow, self._flow = self._flow, None
        if flow is not None and self in self._network.flowing:
            del self._network.flowing[self]
            self._network.fluid.stop(flow)

    def _enqueue(self, message: Message) -> None:
        if message in self._handed_over:
            del self._handed_over[message]
            self._waiting.append(message)
            self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and self.state is ChannelState.OPEN and self._is_path_up():
            message = self._waiting.popleft()
            self._network.sent_bytes += message.nbytes
            self._network.messages += 1
            if message.nbytes < SMALL_BYTES or not (self._path.limited_by or self._path.loss):
                self._send_small(message)
            else:
                self._send_bulk(message)

    def _send_small(self, message: Message) -> None:
        path = self._path
        self._free_at = max(self._free_at, self._kernel.now) + message.nbytes / min(path.rate, message.pace)
        queueing_s = path.queueing_s(self._kernel.now)
        self._plan_arrival(self._free_at + queueing_s + self._loss_timeout_s(message.nbytes), message)

    # --- bulk data -----------------------------------------------------------------------------------------

    def _send_bulk(self, message: Message) -> None:
        path = self._path
        queueing_s = path.queueing_s(self._kernel.now)

        def on_done() -> None:
            self._move(ChannelEvent.BULK_ENDS)
            self._flow = None
            del self._network.flowing[self]
            self._free_at = self._kernel.now
            self._plan_arrival(self._kernel.now + queueing_s, message)
            self._send_waiting()

        self._move(ChannelEvent.BULK_STARTS)
        max_rate = min(self._loss_bound(), message.pace)
        self._flow = Flow(message.nbytes, path.limited_by, path.loads, on_done, max_rate)
        self._slow_start_then_flow(self._flow)

    def _slow_start_then_flow(self, flow: Flow) -> None:
        wait_s, sent_bytes = self._slow_start(flow.remaining)
        flow.remaining -= sent_bytes
        self._kernel.at(max(self._free_at, self._kernel.now) + wait_s, self._start_flow, flow)

    def _start_flow(self, flow: Flow) -> None:
        if flow is self._flow and self.state is ChannelState.BUSY and self._is_path_up():
            self._network.flowing[self] = None
            self._network.fluid.start(flow)

    def cut(self) -> None:
        """Stop the running flow: a link on its path went down. (Called by the network.)"""
        assert self._flow is not None
        del self._network.flowing[self]
        self._network.fluid.stop(self._flow)
        self._fall_silent()

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
        is_lost = self._kernel.random.random() < 1 - (1 - self._path.loss) ** segments
        return self._measured_rto_s() if is_lost else 0.0

    # --- arrival, or a cut link ----------------------------------------------------------------------------

    def _plan_arrival(self, when: float, message: Message) -> None:
        """Plan the arrival of a message that left the sender's queues: never before an earlier message."""
        self._last_arrival = max(self._last_arrival, when + self._path.propagation_s(self._kernel.random))
        self._departures.append(self._kernel.now)
        self._kernel.at(self._last_arrival, self._arrive, message)

    def _arrive(self, message: Message) -> None:
        is_up = self.state in (ChannelState.OPEN, ChannelState.BUSY) and self._is_path_up()
        self._departures.popleft()
        if not is_up:
            self._unacknowledged.append(message)
            return
        self._rto_s = self._measured_rto_s()
        self._kernel.log(*self.ends, message.nbytes)
        message.deliver()

    def _is_path_up(self) -> bool:
        """Return whether all links of the path are up; if not, fall silent. Only in OPEN and BUSY."""
        if self.ends[0] == self.ends[1] or self._network.up_at(*self.ends) <= self._kernel.now:
            return True
        self._fall_silent()
        return False

    def _fall_silent(self) -> None:
        self._move(ChannelEvent.PATH_CUT)
        self._plan_retransmission(self._departures[0] if self._departures else self._kernel.now)

    def _plan_retransmission(self, since: float) -> None:
        """Plan when the timer first fires with the link up: 1, 3, 7 ... times its value after ``since``."""
        timeout_s, fires_at = self._rto_s, since
        while fires_at < self._network.up_at(*self.ends):
            fires_at += timeout_s
            timeout_s *= 2
        self._kernel.at(fires_at, self._retransmit, since)

    def _retransmit(self, since: float) -> None:
        if self._network.up_at(*self.ends) > self._kernel.now:  # the link was cut again
            self._plan_retransmission(since)
            return
        self._move(ChannelEvent.TIMER_FIRES)
        again, self._unacknowledged = self._unacknowledged, []
        for message in again:
            self._plan_arrival(self._kernel.now, message)
        if self._flow is not None:
            self._slow_start_then_flow(self._flow)
        self._send_waiting()

    def _measured_rto_s(self) -> float:
        """Return the timer of a sender that has measured a round trip."""
        return max(MIN_RTO_S, 2 * self._path.rtt_s)
