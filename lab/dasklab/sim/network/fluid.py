"""Bulk data as a fluid: every flow has its max-min fair share of the links on its way, at every moment.

A flow *loads* links and is *held back* by some of them. Mostly these are the same; on a bridge that floods,
its frames also load ports behind which nobody acknowledges them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dasklab.sim.kernel.kernel import Kernel

EXACT = 128  # flows up to which shares are exactly max-min; beyond, each link is shared equally
FULL_BYTES = 16e6  # most that stands before a port: 1000 packets, as large as senders hand them over


@dataclass(eq=False)
class Link:
    """One direction of a port, or of a rack's way out: bytes per second, and the flows that load it.

    A token bucket of ``burst`` bytes lets so many through at once after a pause. ``backlog`` is what was
    flooded to a port and did not fit through it: its senders hear nothing of that, so it grows.
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
        """The tokens there are: they come while nothing is sent."""
        if self.burst and not self.flows:
            self.tokens = min(self.burst, self.tokens + self.rate * (now - self.idle_since))
            self.idle_since = now
        return self.tokens

    def settle(self, now: float) -> None:
        """Let the backlog grow or drain until now."""
        grown = self.backlog + (self.load - self.rate) * (now - self.settled_at)
        self.backlog = min(max(0.0, grown), FULL_BYTES)
        self.settled_at = now

    def behind_s(self, now: float) -> float:
        """How long what comes now waits behind the backlog."""
        self.settle(now)
        return self.backlog / self.rate


@dataclass(eq=False)
class Flow:
    """One message's bytes on their way; ``cap`` is what it could reach alone (loss, window)."""

    left: float
    held_by: tuple[Link, ...]
    loads: tuple[Link, ...]
    done: Callable[[], None]
    cap: float = float("inf")
    rate: float = 0.0
    since: float = 0.0
    plan: int = 0


class Fluid:
    """All flows; whenever one begins or ends, the shares are new."""

    def __init__(self, kernel: Kernel, exact: int = EXACT) -> None:
        self._kernel, self._exact = kernel, exact
        self._flows: dict[Flow, None] = {}
        self._flooded: dict[Link, None] = {}

    def start(self, flow: Flow) -> None:
        """Let a flow run; it calls ``done`` when its last byte has left."""
        flow.since = self._kernel.now
        self._flooded |= dict.fromkeys(link for link in flow.loads if link not in flow.held_by)
        self._burst(flow)
        self._flows[flow] = None
        for link in flow.loads:
            link.flows[flow] = None
        self._share(flow)

    def _burst(self, flow: Flow) -> None:
        """What the token buckets on the way let through at once; a link without one, nothing."""
        tokens = [link.refill(self._kernel.now) for link in flow.held_by]
        at_once = min([flow.left, *tokens]) if tokens else 0.0
        flow.left -= at_once
        for link in flow.loads:
            if link in self._flooded:
                link.settle(self._kernel.now)
                link.backlog += max(0.0, at_once - link.refill(self._kernel.now))
            link.tokens = max(0.0, link.tokens - at_once)

    def _share(self, changed: Flow) -> None:
        if len(self._flows) <= self._exact:
            rates = max_min(self._flows)
        else:
            near = dict.fromkeys(flow for link in changed.loads for flow in link.flows)
            rates = {flow: equal_share(flow) for flow in near}
        for flow, rate in rates.items():
            if rate != flow.rate:
                self._retime(flow, rate)
        for link in self._flooded:
            link.settle(self._kernel.now)
            link.load = sum(flow.rate for flow in link.flows)

    def _retime(self, flow: Flow, rate: float) -> None:
        now = self._kernel.now
        if now > flow.since:
            flow.left -= flow.rate * (now - flow.since)
        flow.since, flow.rate, flow.plan = now, rate, flow.plan + 1
        if rate > 0:
            self._kernel.at(now + max(0.0, flow.left) / rate, self._end, flow, flow.plan)

    def _end(self, flow: Flow, plan: int) -> None:
        if plan == flow.plan:
            self._leave(flow)
            flow.done()

    def halt(self, flow: Flow) -> None:
        """Let a flow stand still; with what is left of it it may be started again."""
        flow.left = max(0.0, flow.left - flow.rate * (self._kernel.now - flow.since))
        self._leave(flow)

    def _leave(self, flow: Flow) -> None:
        flow.plan += 1
        flow.rate = 0.0
        del self._flows[flow]
        for link in flow.loads:
            del link.flows[flow]
            link.idle_since = self._kernel.now
        self._share(flow)


def equal_share(flow: Flow) -> float:
    """The least that a flow gets if every link is shared equally."""
    return min([flow.cap, *(link.rate / len(link.flows) for link in flow.held_by)])


def max_min(flows: Iterable[Flow]) -> dict[Flow, float]:
    """Fill all flows alike until a link is full; those that it holds back stay there, the others go on."""
    rates: dict[Flow, float] = {}
    waiting = dict.fromkeys(flows)
    links = {link: link.rate for flow in waiting for link in flow.loads}
    count = {link: sum(flow in waiting for flow in link.flows) for link in links}
    while waiting:
        level = {flow: _level(flow, links, count) for flow in waiting}
        lowest = min(level.values())
        for flow in [flow for flow, share in level.items() if share <= lowest * (1 + 1e-12)]:
            rates[flow] = lowest
            del waiting[flow]
            for link in flow.loads:
                links[link] = max(0.0, links[link] - lowest)
                count[link] -= 1
    return rates


def _level(flow: Flow, left: dict[Link, float], count: dict[Link, int]) -> float:
    return min([flow.cap, *(left[link] / count[link] for link in flow.held_by)])
