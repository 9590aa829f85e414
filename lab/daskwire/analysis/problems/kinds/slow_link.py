"""Links that carry much less than the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskwire.analysis.problems.evidence.delays import PAUSE_NS
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.traffic import Pair
from daskwire.analysis.problems.finding import COSTLY_S, DELAYS, Finding, Kind, is_cheap
from daskwire.base.arrays import Flags, Ints

WINDOW_BYTES = 256 << 10  # a rate is measured over as much: more than a burst
MIN_WINDOWS = 8
FASTEST_BYTES_S = 12.5e9  # what one message sends at once seems to take no time
MAX_SLOW_SHARE = 1 / 3  # a slow link has less of the other pairs' rate
MAX_BURST_SHARE = 1 / 20  # of the other pairs' rate; bursts of what a link then drops
EVEN_RATIO = 2.5  # 90th percentile by median of a rate that a link sets: two transfers share it at times
EITHER, SENDING, RECEIVING = 0, 1, 2  # direction in which a node is slow; also its index in a pair


@dataclass(frozen=True)
class Rate:
    """How bulk data flows from one node to another.

    Attributes:
        flows: the flows between them.
        median: median of the rate over windows, bytes per second.
        high: its 90th percentile.
        bytes: payload.
        busy_s: time without pauses, and without the gaps after complete messages.
    """

    flows: list[int]
    median: float
    high: float
    bytes: int
    busy_s: float


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield hosts, then pairs of others, whose rate is even and low.

    All peers of a host share its link, so there the sum of their rates is even, not the rate of each pair.
    """
    rates = _rates(evidence)
    pairs = {pair: _reference(pair, rates) for pair in rates}
    for direction in (SENDING, RECEIVING):
        for host in sorted({(pair[0], pair[direction]) for pair in pairs}):
            own = [pair for pair in pairs if (pair[0], pair[direction]) == host]
            link = _rate(evidence, [flow for pair in own for flow in rates[pair].flows])
            others = [rate.median for pair, rate in rates.items() if host[1] not in pair]
            reference = float(np.median(others or [pairs[pair] for pair in own]))
            if len(own) > 1 and link and _is_slow(link, reference):
                yield _slow_link(evidence, (*host, ""), dict.fromkeys(own, reference), rates, direction)
                pairs = {pair: reference for pair, reference in pairs.items() if pair not in own}
    for pair, reference in pairs.items():
        if _is_slow(rates[pair], reference):
            yield _slow_link(evidence, pair, {pair: reference}, rates, EITHER)


def _is_slow(rate: Rate, reference: float) -> bool:
    """Return whether a rate is low, and set by a link: a slow process sends bursts at full rate."""
    is_even = rate.high <= EVEN_RATIO * rate.median
    return rate.high < (MAX_SLOW_SHARE if is_even else MAX_BURST_SHARE) * reference


def _rates(evidence: Evidence) -> dict[Pair, Rate]:
    """Measure the rates of all pairs with enough bulk data."""
    rates = {pair: _rate(evidence, flows) for pair, flows in evidence.flows_of.items()}
    return {pair: rate for pair, rate in rates.items() if rate}


def _rate(evidence: Evidence, flows: list[int]) -> Rate | None:
    segments, rows = evidence.capture.segments, evidence.data_rows(flows)
    total = np.cumsum(segments.length[rows], dtype=np.int64)
    if not len(rows) or total[-1] < MIN_WINDOWS * WINDOW_BYTES:
        return None
    time_ns = segments.time_ns[rows]
    gap = np.diff(time_ns, prepend=time_ns[0])
    is_idle = np.append(False, _ends_message(evidence, flows, time_ns)[:-1])
    busy_ns = np.cumsum(np.where((gap > PAUSE_NS) | is_idle, 0, gap))
    starts = np.searchsorted(total, np.arange(0, total[-1] - WINDOW_BYTES, WINDOW_BYTES // 2))
    ends = np.searchsorted(total, total[starts] + WINDOW_BYTES)
    starts, ends = starts[ends < len(total)], ends[ends < len(total)]
    if len(starts) < MIN_WINDOWS:
        return None
    size = total[ends] - total[starts]
    rates = size / np.maximum((busy_ns[ends] - busy_ns[starts]) / 1e9, size / FASTEST_BYTES_S)
    high = float(np.percentile(rates, 90))
    return Rate(flows, float(np.median(rates)), high, int(total[-1]), float(busy_ns[-1]) / 1e9)


def _ends_message(evidence: Evidence, flows: list[int], time_ns: Ints) -> Flags:
    """Return at which times a message was complete and no other one on its way: no more may be to send."""
    messages = evidence.capture.messages
    own = np.isin(messages.flow, flows)
    begin_ns, end_ns = messages.time_ns[own], np.sort(messages.end_ns[own])
    starts, stops = (np.searchsorted(times, time_ns, "right") for times in (np.sort(begin_ns), end_ns))
    return np.isin(time_ns, end_ns) & (starts <= stops)


def _reference(pair: Pair, rates: dict[Pair, Rate]) -> float:
    """Return the median rate of the pairs with another sender and another receiver, 0 without any."""
    others = [
        rate.median
        for (_, source, destination), rate in rates.items()
        if source != pair[1] and destination != pair[2]
    ]
    return float(np.median(others)) if others else 0.0


def _slow_link(
    evidence: Evidence, where: Pair, slow: dict[Pair, float], rates: dict[Pair, Rate], direction: int
) -> Finding:
    own = [rates[pair] for pair in slow]
    reference = float(np.median(list(slow.values())))
    flows = [flow for rate in own for flow in rate.flows]
    trips = evidence.capture.round_trips.minimum_ms[flows]
    rtt = f"; RTT from {float(np.nanmin(trips)):.2f} ms" if np.isfinite(trips).any() else ""
    direction_text = {EITHER: "", SENDING: "from it ", RECEIVING: "to it "}[direction]
    what = (
        f"bulk data {direction_text}flows at {_bit_rate(np.median([rate.median for rate in own]))}"
        f" ({sum(rate.bytes for rate in own) / 1e6:,.0f} MB in {sum(rate.busy_s for rate in own):.1f} s);"
        f" other pairs reach {_bit_rate(reference)}{rtt}"
    )
    cost_s = sum(max(rate.busy_s - rate.bytes / reference, 0.0) for rate in own)
    return Finding(
        KIND, what, where, evidence.span(flows), cost_s, 0.9, len(slow), tuple(flows), is_cheap(cost_s)
    )


def _bit_rate(bytes_per_s: float) -> str:
    mbit = float(bytes_per_s) * 8 / 1e6
    return f"{mbit:,.0f} Mbit/s" if mbit < 1000 else f"{mbit / 1000:,.1f} Gbit/s"


KIND = Kind(
    name="slow link",
    meaning="A link carries much less than the others.",
    threshold=(
        "bulk data between two hosts, or between a host and all others, flows evenly at less than a third of"
        f" the rate of other pairs, or always at less than 1/20 of it, and that cost {COSTLY_S} s"
    ),
    advice="Check negotiated speed, rate limits and shared uplinks: ethtool, tc qdisc, the hypervisor.",
    filter="tcp.len > 0",
    effects=frozenset({"loss", "retransmission time-outs", "bufferbloat"}) | DELAYS,
    is_on_path=True,
    detect=detect,
)
