"""Bulk data as a fluid: at every moment each flow has its max-min fair share of the pipes on its path.

Theory of operation
-------------------
A pipe is one direction of a port or of a rack's uplink: a capacity in bytes per second. A flow is the bytes
of one message. Between two events (a flow starts, ends or stops) all rates are constant, so the model
computes the shares once per event and plans the end of each flow.

Two relations between flows and pipes are kept apart:

    limited_by   pipes whose capacity bounds the flow, because its receiver acknowledges through them
    loads        pipes whose capacity the flow consumes

Usually they are the same. On a flooding bridge every frame also reaches the ports of all other machines. It
loads them, but nobody behind them acknowledges it, so they do not slow it down. Bytes that do not fit through
such a port wait in front of it, in its ``backlog``.

A pipe may have a token bucket: after a pause it passes ``burst`` bytes at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dasklab.sim.kernel.kernel import Kernel

EXACT_FLOWS = 128  # up to so many flows shares are exactly max-min; beyond, each pipe is shared equally
MAX_BACKLOG_BYTES = 16e6  # 1000 packets, each as large as senders hand them over (a 16 kB super-frame)


@dataclass(eq=False)
class Pipe:
    """One direction of a port or uplink, and the flows that load it.

    Attributes:
        rate: bytes per second; infinite if unlimited.
        burst: bytes that its token bucket holds; 0 is no bucket.
        backlog: bytes that were flooded to this port and did not fit through it. Their senders do not notice,
            so it grows while the load exceeds the rate.
        load: bytes per second of all flows that load it; kept for flooded ports only.
    """

    rate: float
    burst: float = 0.0
    flows: dict[Flow, None] = field(default_factory=dict)
    tokens: float = field(default=0.0, init=False)
    idle_since: float = field(default=-math.inf, init=False)
    backlog: float = field(default=0.0, init=False)
    load: float = field(default=0.0, init=False)
    settled_at: float = field(default=0.0, init=False)

    def refill(self, now: float) -> float:
        """Add the tokens of a pause that lasted until now; return the bytes that may pass at once."""
        if self.burst and not self.flows:
            self.tokens = min(self.burst, self.tokens + self.rate * (now - self.idle_since))
            self.idle_since = now
        return self.tokens

    def settle(self, now: float) -> None:
        """Let the backlog grow or drain until now."""
        grown = self.backlog + (self.load - self.rate) * (now - self.settled_at)
        self.backlog = min(max(0.0, grown), MAX_BACKLOG_BYTES)
        self.settled_at = now

    def backlog_s(self, now: float) -> float:
        """Return how long a byte that arrives now waits behind the backlog."""
        self.settle(now)
        return self.backlog / self.rate


@dataclass(eq=False)
class Flow:
    """The bytes of one message.

    Attributes:
        remaining: bytes that had not left at the time ``since``.
        limited_by: pipes that bound its rate.
        loads: pipes whose capacity it consumes.
        on_done: called when the last byte has left.
        max_rate: bytes per second that it would reach alone (loss, or how fast it is written).
        rate: its share since the time ``since``, in bytes per second.
        plan: number of the current plan for its end; earlier plans are void.
    """

    remaining: float
    limited_by: tuple[Pipe, ...]
    loads: tuple[Pipe, ...]
    on_done: Callable[[], None]
    max_rate: float = float("inf")
    rate: float = 0.0
    since: float = 0.0
    plan: int = 0


class Fluid:
    """All flows of a network. Shares are computed again whenever a flow starts, ends or stops."""

    def __init__(self, kernel: Kernel, exact_flows: int = EXACT_FLOWS) -> None:
        self._kernel, self._exact_flows = kernel, exact_flows
        self._flows: dict[Flow, None] = {}
        self._flooded: dict[Pipe, None] = {}

    def start(self, flow: Flow) -> None:
        """Let a flow run. It calls ``on_done`` when its last byte has left."""
        flow.since = self._kernel.now
        self._flooded |= dict.fromkeys(pipe for pipe in flow.loads if pipe not in flow.limited_by)
        self._burst(flow)
        self._flows[flow] = None
        for pipe in flow.loads:
            pipe.flows[flow] = None
        self._share(flow)

    def stop(self, flow: Flow) -> None:
        """Take a flow off its pipes. What remains of it may be started again."""
        flow.remaining = max(0.0, flow.remaining - flow.rate * (self._kernel.now - flow.since))
        self._leave(flow)

    def _burst(self, flow: Flow) -> None:
        """Pass at once what all token buckets on the path allow; a pipe without a bucket allows nothing."""
        tokens = [pipe.refill(self._kernel.now) for pipe in flow.limited_by]
        at_once = min([flow.remaining, *tokens]) if tokens else 0.0
        flow.remaining -= at_once
        for pipe in flow.loads:
            if pipe in self._flooded:
                pipe.settle(self._kernel.now)
                pipe.backlog += max(0.0, at_once - pipe.refill(self._kernel.now))
            pipe.tokens = max(0.0, pipe.tokens - at_once)

    def _share(self, changed: Flow) -> None:
        if len(self._flows) <= self._exact_flows:
            rates = max_min(self._flows)
        else:
            neighbours = dict.fromkeys(flow for pipe in changed.loads for flow in pipe.flows)
            rates = {flow: equal_share(flow) for flow in neighbours}
        for flow, rate in rates.items():
            if rate != flow.rate:
                self._set_rate(flow, rate)
        for pipe in self._flooded:
            pipe.settle(self._kernel.now)
            pipe.load = sum(flow.rate for flow in pipe.flows)

    def _set_rate(self, flow: Flow, rate: float) -> None:
        now = self._kernel.now
        if now > flow.since:
            flow.remaining -= flow.rate * (now - flow.since)
        flow.since, flow.rate, flow.plan = now, rate, flow.plan + 1
        if rate > 0:
            self._kernel.at(now + max(0.0, flow.remaining) / rate, self._end, flow, flow.plan)

    def _end(self, flow: Flow, plan: int) -> None:
        if plan == flow.plan:
            self._leave(flow)
            flow.on_done()

    def _leave(self, flow: Flow) -> None:
        flow.plan += 1
        flow.rate = 0.0
        del self._flows[flow]
        for pipe in flow.loads:
            del pipe.flows[flow]
            pipe.idle_since = self._kernel.now
        self._share(flow)


def equal_share(flow: Flow) -> float:
    """Return the rate that a flow has if every pipe on its path is shared equally."""
    return min([flow.max_rate, *(pipe.rate / len(pipe.flows) for pipe in flow.limited_by)])


def max_min(flows: Iterable[Flow]) -> dict[Flow, float]:
    """Return max-min fair rates by progressive filling.

    The rates of all flows rise together until a pipe is full or a flow reaches its own limit. The flows that
    this bounds keep their rate; the others rise further.
    """
    rates: dict[Flow, float] = {}
    rising = dict.fromkeys(flows)
    capacity = {pipe: pipe.rate for flow in rising for pipe in flow.loads}
    users = {pipe: sum(flow in rising for flow in pipe.flows) for pipe in capacity}
    while rising:
        level = {flow: _level(flow, capacity, users) for flow in rising}
        lowest = min(level.values())
        for flow in [flow for flow, share in level.items() if share <= lowest * (1 + 1e-12)]:
            rates[flow] = lowest
            del rising[flow]
            for pipe in flow.loads:
                capacity[pipe] = max(0.0, capacity[pipe] - lowest)
                users[pipe] -= 1
    return rates


def _level(flow: Flow, capacity: dict[Pipe, float], users: dict[Pipe, int]) -> float:
    """Return how high a flow can rise if the remaining capacity of each pipe is shared equally."""
    return min([flow.max_rate, *(capacity[pipe] / users[pipe] for pipe in flow.limited_by)])
