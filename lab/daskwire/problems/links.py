"""Detect links that carry too little or delay too much: slow links, bufferbloat, delayed ACKs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskwire.arrays import Flags, Ints
from daskwire.net.health import Samples
from daskwire.net.segments import ACK, SYN
from daskwire.problems.finding import Finding, Interval, Pair, is_cheap, notes_if_cheap
from daskwire.problems.view import SECOND_NS, View, hull, merged, seconds

WINDOW = 256 << 10  # bytes over which a rate is measured: more than a burst
PAUSE_NS = 100_000_000  # a longer gap is a pause of the sender; 64 kB take this long at 5 Mbit/s
SILENT = 0.5  # of a wait in a queue, at most
FASTEST = 12.5e9  # bytes per second; what one message sends at once seems to take no time
FEWEST = 8  # windows, or samples
SLOW = 1 / 3  # of the other pairs' rate
EVEN = 2.5  # 90th percentile divided by median of a rate that a link sets: two transfers share it at times
QUEUE_NS = 50_000_000
LOAD = 64 << 10  # bytes in flight of a busy link
DELAYS_NS = ((35_000_000, 60_000_000), (180_000_000, 220_000_000))  # of delayed ACKs, on common systems
AT_ONCE_NS = 2_000_000
DELAYED = 10
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


def links(view: View) -> Iterator[Finding]:
    yield from _slow_links(view)
    for samples, side in ((view.rtts, "behind"), (view.echoes, "before")):
        yield from notes_if_cheap(_bufferbloat(view, samples, side))
    yield from notes_if_cheap(_delayed_acks(view))


def _rates(view: View) -> dict[Pair, Rate]:
    """Measure the rates of all pairs with enough bulk data."""
    rates = {pair: _rate(view, flows) for pair, flows in view.flows_of.items()}
    return {pair: rate for pair, rate in rates.items() if rate}


def _rate(view: View, flows: list[int]) -> Rate | None:
    segments, rows = view.capture.segments, view.data_rows(flows)
    total = np.cumsum(segments.length[rows], dtype=np.int64)
    if not len(rows) or total[-1] < FEWEST * WINDOW:
        return None
    time_ns = segments.time_ns[rows]
    gap = np.diff(time_ns, prepend=time_ns[0])
    is_idle = np.append(False, _ends_message(view, flows, time_ns)[:-1])
    busy_ns = np.cumsum(np.where((gap > PAUSE_NS) | is_idle, 0, gap))
    starts = np.searchsorted(total, np.arange(0, total[-1] - WINDOW, WINDOW // 2))
    ends = np.searchsorted(total, total[starts] + WINDOW)
    starts, ends = starts[ends < len(total)], ends[ends < len(total)]
    if len(starts) < FEWEST:
        return None
    size = total[ends] - total[starts]
    rates = size / np.maximum((busy_ns[ends] - busy_ns[starts]) / 1e9, size / FASTEST)
    high = float(np.percentile(rates, 90))
    return Rate(flows, float(np.median(rates)), high, int(total[-1]), float(busy_ns[-1]) / 1e9)


def _ends_message(view: View, flows: list[int], time_ns: Ints) -> Flags:
    """Return at which times a message of these flows was complete: its sender may have no more to send."""
    messages = view.capture.messages
    return np.isin(time_ns, messages.end_ns[np.isin(messages.flow, flows)])


def _slow_links(view: View) -> Iterator[Finding]:
    """Yield pairs whose rate is even and low, joined by host where all pairs of it are slow."""
    rates = _rates(view)
    references = {pair: _reference(pair, rates) for pair in rates}
    slow = {
        pair: reference
        for pair, reference in references.items()
        if rates[pair].high <= EVEN * rates[pair].median and rates[pair].high < SLOW * reference
    }
    for direction in (SENDING, RECEIVING):
        for node in sorted({pair[direction] for pair in slow}):
            own = [pair for pair in rates if pair[direction] == node]
            if len(own) > 1 and all(pair in slow for pair in own):
                group = {pair: slow.pop(pair) for pair in own}
                yield _slow_link(view, (own[0][0], node, ""), group, rates, direction)
    for pair, reference in slow.items():
        yield _slow_link(view, pair, {pair: reference}, rates, EITHER)


def _reference(pair: Pair, rates: dict[Pair, Rate]) -> float:
    """Return the median rate of the pairs with another sender and another receiver, 0 without any."""
    others = [
        rate.median
        for (_, source, destination), rate in rates.items()
        if source != pair[1] and destination != pair[2]
    ]
    return float(np.median(others)) if others else 0.0


def _slow_link(
    view: View, where: Pair, slow: dict[Pair, float], rates: dict[Pair, Rate], direction: int
) -> Finding:
    own = [rates[pair] for pair in slow]
    reference = float(np.median(list(slow.values())))
    flows = [flow for rate in own for flow in rate.flows]
    trips = view.capture.round_trips.minimum_ms[flows]
    rtt = f"; RTT from {float(np.nanmin(trips)):.2f} ms" if np.isfinite(trips).any() else ""
    direction_text = {EITHER: "", SENDING: "from it ", RECEIVING: "to it "}[direction]
    what = (
        f"bulk data {direction_text}flows evenly at {_bit_rate(np.median([rate.median for rate in own]))}"
        f" ({sum(rate.bytes for rate in own) / 1e6:,.0f} MB in {sum(rate.busy_s for rate in own):.1f} s);"
        f" other pairs reach {_bit_rate(reference)}{rtt}"
    )
    cost_s = sum(max(rate.busy_s - rate.bytes / reference, 0.0) for rate in own)
    return Finding(
        "slow link", what, where, view.span(flows), cost_s, 0.9, len(slow), tuple(flows), is_cheap(cost_s)
    )


def _bit_rate(bytes_per_s: float) -> str:
    mbit = float(bytes_per_s) * 8 / 1e6
    return f"{mbit:,.0f} Mbit/s" if mbit < 1000 else f"{mbit / 1000:,.1f} Gbit/s"


def _bufferbloat(view: View, samples: Samples, side: str) -> Iterator[Finding]:
    """Yield pairs whose packets wait in a queue while data flows."""
    for pair, flows in view.flows_of.items():
        index = np.flatnonzero(np.isin(samples.flow, flows))
        if not len(index):
            continue
        base_ns = float(samples.rtt_ns[index].min())
        index = index[(samples.rtt_ns[index] > base_ns + QUEUE_NS) & ~_looks_delayed(samples.rtt_ns[index])]
        index = index[_bytes_in_flight(view, samples, index, flows) > LOAD]
        if side == "before":
            index = index[_is_queued(view, samples, index, flows)]
        waits = [(int(samples.time_ns[i] - samples.rtt_ns[i]), int(samples.time_ns[i])) for i in index]
        if len(waits) < FEWEST or not view.while_running(pair[0], hull(waits)):
            continue
        cost_s = _waiting_s(view, flows, waits, samples.rtt_ns[index] - int(base_ns))
        median_ms, high_ms = (float(np.percentile(samples.rtt_ns[index], q)) / 1e6 for q in (50, 95))
        what = (
            f"under load the RTT is {median_ms:,.0f} ms (95th percentile {high_ms:,.0f} ms) instead of"
            f" {base_ns / 1e6:.2f} ms; the queue is {side} the capture point"
        )
        yield Finding("bufferbloat", what, pair, hull(waits), cost_s, 0.8, len(waits), tuple(flows))


def _bytes_in_flight(view: View, samples: Samples, index: Ints, flows: list[int]) -> Ints:
    """Return how many bytes the flows carried during each sample."""
    segments, rows = view.capture.segments, view.data_rows(flows)
    total = np.append(0, np.cumsum(segments.length[rows], dtype=np.int64))
    begin = np.searchsorted(segments.time_ns[rows], samples.time_ns[index] - samples.rtt_ns[index])
    return np.asarray(total[np.searchsorted(segments.time_ns[rows], samples.time_ns[index])] - total[begin])


def _is_queued(view: View, samples: Samples, index: Ints, flows: list[int]) -> Flags:
    """Return which delays of a sender's echo are those of its queue.

    Meanwhile the link sends what is in front of it, so the flows are never silent for long; else the sender
    paused. And the peer sends no data: after data that is not acknowledged yet, a timestamp is not echoed
    (RFC 7323, 4.3).
    """
    sent_ns = view.capture.segments.time_ns[view.data_rows(flows)]
    peer_ns = view.capture.segments.time_ns[view.data_rows([flow ^ 1 for flow in flows])]
    queued = []
    for end, wait in zip(samples.time_ns[index].tolist(), samples.rtt_ns[index].tolist(), strict=True):
        inside = sent_ns[np.searchsorted(sent_ns, end - wait) : np.searchsorted(sent_ns, end)]
        silence = np.diff(inside, prepend=end - wait, append=end).max()
        peer = np.diff(np.searchsorted(peer_ns, [end - wait - PAUSE_NS, end]))
        queued.append(silence <= SILENT * wait and not peer)
    return np.array(queued, bool)


def _looks_delayed(rtt_ns: Ints) -> Flags:
    """Return which samples may contain a delayed ACK."""
    delayed = [(rtt_ns >= low) & (rtt_ns <= high) for low, high in DELAYS_NS]
    return np.asarray(np.any(delayed, axis=0))


def _waiting_s(view: View, flows: list[int], waits: list[Interval], delay_ns: Ints) -> float:
    """Return how long messages waited in a queue: each one for the median delay at its time."""
    messages = view.capture.messages
    time_ns = np.sort(messages.time_ns[np.isin(messages.flow, flows)])
    begins = np.array([begin for begin, _ in waits])
    cost_ns = 0.0
    for begin, end in merged(waits, SECOND_NS // 5):
        number = int(np.diff(np.searchsorted(time_ns, [begin, end]))[0])
        cost_ns += number * float(np.median(delay_ns[(begins >= begin) & (begins <= end)]))
    return cost_ns / 1e9


def _delayed_acks(view: View) -> Iterator[Finding]:
    """Yield senders that wait for delayed ACKs: their next segment follows such an ACK at once."""
    samples = view.rtts
    late = np.flatnonzero(_looks_delayed(samples.rtt_ns))
    groups: defaultdict[tuple[str, str], list[tuple[Interval, int]]] = defaultdict(list)
    for flow in np.unique(samples.flow[late]).tolist():
        index = late[samples.flow[late] == flow]
        begin, end = samples.time_ns[index] - samples.rtt_ns[index], samples.time_ns[index]
        for wait in zip(begin.tolist(), end.tolist(), strict=True):
            if _sender_waited(view, flow, wait):
                groups[view.pairs[flow][:2]].append((wait, flow))
    for node, events in sorted(groups.items()):
        if len(events) < DELAYED:
            continue
        waits = [wait for wait, _ in events]
        cost_s = sum(seconds([wait]) for wait in waits)
        median_ms = float(np.median([end - begin for begin, end in waits])) / 1e6
        flows = tuple(sorted({flow for _, flow in events}))
        peers = sorted({view.pairs[flow][2] for flow in flows})
        what = (
            f"{len(events)} segments to {', '.join(peers)} were sent only after an ACK that came"
            f" {median_ms:.0f} ms late (median)"
        )
        pair = *node, peers[0] if len(peers) == 1 else ""
        yield Finding("delayed ACKs", what, pair, hull(waits), cost_s, 0.8, len(events), flows)


def _sender_waited(view: View, flow: int, wait: Interval) -> bool:
    """Return whether a sender was quiet until a pure ACK, and sent at once after it."""
    segments = view.capture.segments
    sent_ns = segments.time_ns[view.data_rows([flow])]
    following = int(np.searchsorted(sent_ns, wait[1]))
    if not 0 < following < len(sent_ns) or sent_ns[following] - wait[1] > AT_ONCE_NS:
        return False
    acks = view.rows(flow ^ 1)
    acks = acks[(segments.length[acks] == 0) & (segments.flags[acks] & (ACK | SYN) == ACK)]
    return bool(sent_ns[following - 1] <= wait[0] + AT_ONCE_NS and (segments.time_ns[acks] == wait[1]).any())
