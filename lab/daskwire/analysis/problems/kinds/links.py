"""Links that are slow, shared, full or long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskwire.analysis.problems.evidence.evidence import PAUSE_NS, Evidence, looks_delayed
from daskwire.analysis.problems.evidence.retransmissions import SECOND_NS, Interval, hull, merged
from daskwire.analysis.problems.evidence.traffic import Node, Pair
from daskwire.analysis.problems.finding import COSTLY_S, DELAYS, Finding, Kind, is_cheap, notes_if_cheap
from daskwire.analysis.tables.completeness import ENCRYPTED
from daskwire.analysis.tables.participants import WORKER, participants
from daskwire.analysis.tables.traffic import round_trip_ms
from daskwire.base.arrays import NONE, Flags, Ints
from daskwire.decoder.dask.content import MessageKind
from daskwire.decoder.dask.relays import RELAYED
from daskwire.decoder.net.health import Samples

# Links that carry much less than the others.

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


def find_slow_link(evidence: Evidence) -> Iterator[Finding]:
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
        SLOW_LINK, what, where, evidence.span(flows), cost_s, 0.9, len(slow), tuple(flows), is_cheap(cost_s)
    )


def _bit_rate(bytes_per_s: float) -> str:
    mbit = float(bytes_per_s) * 8 / 1e6
    return f"{mbit:,.0f} Mbit/s" if mbit < 1000 else f"{mbit / 1000:,.1f} Gbit/s"


SLOW_LINK = Kind(
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
    detect=find_slow_link,
)


# Bulk data of strangers on a link that Dask fills.

BIN_NS = 100_000_000
MIN_SHARED_BINS = 10  # both Dask and strangers must send in so many
MIN_SHARE = 0.2  # each side must have sent so many of the bytes
MAX_UNEVENNESS = 1.5  # a full link carries the same all the time: 90th percentile by median
QUEUE_NS = 5_000_000  # a full link delays packets by this


@dataclass(frozen=True)
class Load:
    """What one host receives (or sends), in bins of BIN_NS: bytes of Dask, and of others."""

    first_bin: int
    dask: Ints
    others: Ints

    @property
    def is_shared(self) -> Flags:
        return (self.dask > 0) & (self.others > 0)


def find_cross_traffic(evidence: Evidence) -> Iterator[Finding]:
    """Yield hosts whose full link carries much that is not Dask."""
    is_dask = _dask_flows(evidence)
    senders = evidence.capture.senders
    hosts = sorted({senders[flow][0] for flow in evidence.flows if is_dask[flow]})
    for address in hosts:
        for side, preposition in ((1, "to"), (0, "from")):
            flows = [flow for flow in evidence.flows if senders[flow ^ side][0] == address]
            own = [flow for flow in flows if is_dask[flow]]
            strangers = [flow for flow in flows if not is_dask[flow]]
            if own and strangers and (finding := _finding(evidence, address, preposition, own, strangers)):
                yield finding


def _dask_flows(evidence: Evidence) -> Flags:
    """Return which flows carry Dask, or may do so encrypted."""
    capture, result = evidence.capture, np.zeros(2 * len(evidence.capture.connections), bool)
    protocols = {**capture.other_protocols, **dict.fromkeys(capture.conversations, RELAYED)}
    for connection, protocol in protocols.items():
        result[[2 * connection, 2 * connection + 1]] = protocol in ENCRYPTED | {RELAYED}
    return result


def _finding(
    evidence: Evidence, address: str, preposition: str, own: list[int], strangers: list[int]
) -> Finding | None:
    load = _load(evidence, own, strangers)
    if load is None or load.is_shared.sum() < MIN_SHARED_BINS:
        return None
    total = (load.dask + load.others)[load.is_shared]
    median, high = float(np.median(total)), float(np.percentile(total, 90))
    alone = load.dask[(load.dask > 0) & ~load.is_shared]
    other_bytes = int(load.others[load.is_shared].sum())
    share = other_bytes / int(total.sum())
    is_full = high <= MAX_UNEVENNESS * median and alone.max(initial=0) <= MAX_UNEVENNESS * median
    if not is_full or not MIN_SHARE <= share <= 1 - MIN_SHARE or not _is_queued(evidence, own, load):
        return None
    peers = sorted({evidence.pairs[flow][2 if preposition == "from" else 1] for flow in strangers})
    rate_mbit = median * 8e3 / BIN_NS
    cost_s = other_bytes / median * BIN_NS / 1e9  # the time that the link spent on them
    what = (
        f"{share:.0%} of the bytes {preposition} it, {other_bytes / 1e6:,.0f} MB, are not Dask's, while its"
        f" link is full at {rate_mbit:,.0f} Mbit/s: connections {preposition} {', '.join(peers)}"
    ).replace("%", " %")
    bins = load.first_bin + np.flatnonzero(load.is_shared)
    when = int(bins[0]) * BIN_NS, int(bins[-1] + 1) * BIN_NS
    pair = evidence.pairs[own[0]]
    node = pair[1] if preposition == "from" else pair[2]
    return Finding(
        CROSS_TRAFFIC,
        what,
        (pair[0], node, ""),
        when,
        cost_s,
        0.8,
        len(strangers),
        tuple(strangers),
        is_cheap(cost_s),
    )


def _load(evidence: Evidence, own: list[int], strangers: list[int]) -> Load | None:
    segments = evidence.capture.segments
    rows = [evidence.data_rows(flows) for flows in (own, strangers)]
    if not all(map(len, rows)):
        return None
    bins = [segments.time_ns[part] // BIN_NS for part in rows]
    first, last = min(int(part[0]) for part in bins), max(int(part[-1]) for part in bins)
    dask, others = (
        np.bincount(part - first, segments.ip_bytes[selected], last - first + 1).astype(np.int64)
        for part, selected in zip(bins, rows, strict=True)
    )
    return Load(first, dask, others)


def _is_queued(evidence: Evidence, own: list[int], load: Load) -> bool:
    """Return whether Dask's packets wait in a queue while strangers send."""
    for samples in (evidence.rtts, evidence.echoes):
        index = np.flatnonzero(np.isin(samples.flow, own))
        bins = samples.time_ns[index] // BIN_NS - load.first_bin
        inside = (bins >= 0) & (bins < len(load.dask))
        index, bins = index[inside], bins[inside]
        shared = samples.rtt_ns[index[load.is_shared[bins]]]
        if len(shared) and np.median(shared) > int(samples.rtt_ns[index].min()) + QUEUE_NS:
            return True
    return False


CROSS_TRAFFIC = Kind(
    name="cross traffic",
    meaning="Data that is not Dask's takes much of a link that Dask fills.",
    threshold=(
        "connections without Dask have 20 to 80 % of a host's bytes while its link is full: an even rate,"
        f" which Dask alone does not exceed, and packets that wait 5 ms or more; and that cost {COSTLY_S} s"
    ),
    advice="Move or limit the other program (tc, its own rate option), or give Dask a network of its own.",
    filter="tcp.len > 0",
    effects=frozenset({"loss", "retransmission time-outs", "bufferbloat", "slow link"}) | DELAYS,
    detect=find_cross_traffic,
)


# Packets that wait in a long queue whenever a link is busy.

BUFFERBLOAT_NS = 50_000_000
LOAD_BYTES = 64 << 10  # a busy link has more in flight
MIN_SAMPLES = 8
MAX_SILENT_SHARE = 0.5  # a sender that is silent for more of a wait pauses


def find_bufferbloat(evidence: Evidence) -> Iterator[Finding]:
    for samples, side in ((evidence.rtts, "behind"), (evidence.echoes, "before")):
        yield from notes_if_cheap(_queues(evidence, samples, side))


def _queues(evidence: Evidence, samples: Samples, side: str) -> Iterator[Finding]:
    """Yield pairs whose packets wait in a queue while data flows."""
    for pair, flows in evidence.flows_of.items():
        index = np.flatnonzero(np.isin(samples.flow, flows))
        if not len(index):
            continue
        base_ns = float(samples.rtt_ns[index].min())
        index = index[
            (samples.rtt_ns[index] > base_ns + BUFFERBLOAT_NS) & ~looks_delayed(samples.rtt_ns[index])
        ]
        index = index[_bytes_in_flight(evidence, samples, index, flows) > LOAD_BYTES]
        if side == "before":
            index = index[_waits_in_queue(evidence, samples, index, flows)]
        waits = [(int(samples.time_ns[i] - samples.rtt_ns[i]), int(samples.time_ns[i])) for i in index]
        if len(waits) < MIN_SAMPLES or not evidence.while_running(pair[0], hull(waits)):
            continue
        cost_s = _waiting_s(evidence, flows, waits, samples.rtt_ns[index] - int(base_ns))
        median_ms, high_ms = (float(np.percentile(samples.rtt_ns[index], q)) / 1e6 for q in (50, 95))
        what = (
            f"under load the RTT is {median_ms:,.0f} ms (95th percentile {high_ms:,.0f} ms) instead of"
            f" {base_ns / 1e6:.2f} ms; the queue is {side} the capture point"
        )
        yield Finding(BUFFERBLOAT, what, pair, hull(waits), cost_s, 0.8, len(waits), tuple(flows))


def _bytes_in_flight(evidence: Evidence, samples: Samples, index: Ints, flows: list[int]) -> Ints:
    """Return how many bytes the flows carried during each sample."""
    segments, rows = evidence.capture.segments, evidence.data_rows(flows)
    total = np.append(0, np.cumsum(segments.length[rows], dtype=np.int64))
    begin = np.searchsorted(segments.time_ns[rows], samples.time_ns[index] - samples.rtt_ns[index])
    return np.asarray(total[np.searchsorted(segments.time_ns[rows], samples.time_ns[index])] - total[begin])


def _waits_in_queue(evidence: Evidence, samples: Samples, index: Ints, flows: list[int]) -> Flags:
    """Return which delays of a sender's echo are those of its queue.

    Meanwhile the link sends what is in front of it, so the flows are never silent for long; else the sender
    paused. And the peer sends no data: after data that is not acknowledged yet, a timestamp is not echoed
    (RFC 7323, 4.3).
    """
    sent_ns = evidence.capture.segments.time_ns[evidence.data_rows(flows)]
    peer_ns = evidence.capture.segments.time_ns[evidence.data_rows([flow ^ 1 for flow in flows])]
    queued = []
    for end, wait in zip(samples.time_ns[index].tolist(), samples.rtt_ns[index].tolist(), strict=True):
        inside = sent_ns[np.searchsorted(sent_ns, end - wait) : np.searchsorted(sent_ns, end)]
        silence = np.diff(inside, prepend=end - wait, append=end).max()
        peer = np.diff(np.searchsorted(peer_ns, [end - wait - PAUSE_NS, end]))
        queued.append(silence <= MAX_SILENT_SHARE * wait and not peer)
    return np.array(queued, bool)


def _waiting_s(evidence: Evidence, flows: list[int], waits: list[Interval], delay_ns: Ints) -> float:
    """Return how long messages waited in a queue: each one for the median delay at its time."""
    messages = evidence.capture.messages
    time_ns = np.sort(messages.time_ns[np.isin(messages.flow, flows)])
    begins = np.array([begin for begin, _ in waits])
    cost_ns = 0.0
    for begin, end in merged(waits, SECOND_NS // 5):
        number = int(np.diff(np.searchsorted(time_ns, [begin, end]))[0])
        cost_ns += number * float(np.median(delay_ns[(begins >= begin) & (begins <= end)]))
    return cost_ns / 1e9


BUFFERBLOAT = Kind(
    name="bufferbloat",
    meaning="Packets wait in a long queue whenever a link is busy.",
    threshold=(
        f"under load the RTT is at least 50 ms longer than the smallest one, and that cost {COSTLY_S} s"
    ),
    advice="Shorten the queue (tc qdisc replace dev ... fq_codel), or limit the rate of the senders.",
    filter="tcp.analysis.ack_rtt > 0.05",
    effects=frozenset({"loss", "retransmission time-outs"}) | DELAYS,
    is_on_path=True,
    detect=find_bufferbloat,
)


# Workers that are much farther from the scheduler than the others.

FAR_MS, FAR_RATIO = 5.0, 5.0  # an RTT that is both longer by FAR_MS and FAR_RATIO times the others'


def find_far_worker(evidence: Evidence) -> Iterator[Finding]:
    """Yield workers whose RTT with the scheduler is much longer than that of most others."""
    trips = _trips_ms(evidence)
    for (cluster, worker), rtt_ms in trips.items():
        others = [ms for (own, name), ms in trips.items() if own == cluster and name != worker]
        usual_ms = float(np.median(others)) if others else rtt_ms
        if rtt_ms < max(usual_ms + FAR_MS, FAR_RATIO * usual_ms):
            continue
        flows = tuple(flow for flow in evidence.flows if worker in evidence.pairs[flow][1:])
        number = _waiting_messages(evidence, flows)
        cost_s = number * (rtt_ms - usual_ms) / 2 / 1e3  # each message is on its way for half a round trip
        what = (
            f"its RTT with the scheduler is at least {rtt_ms:.1f} ms, that of other workers {usual_ms:.2f} ms"
            f" (median); {number:,} messages took that much longer"
        )
        when = evidence.span(flows)
        yield Finding(
            FAR_WORKER, what, (cluster, worker, ""), when, cost_s, 0.9, number, flows, is_cheap(cost_s)
        )


def _trips_ms(evidence: Evidence) -> dict[Node, float]:
    """Return the RTT between the scheduler and each of its workers."""
    result: dict[Node, float] = {}
    workers = {
        evidence.pairs[member.flow] for member in participants(evidence.capture) if member.role == WORKER
    }
    for pair in sorted(workers):
        rtt_ms = round_trip_ms(evidence.capture, evidence.flows_of.get(pair, []))
        if rtt_ms is not None:
            result[pair[:2]] = rtt_ms
    return result


def _waiting_messages(evidence: Evidence, flows: tuple[int, ...]) -> int:
    """Count the messages of some flows for which somebody waits: neither heartbeats nor handshakes."""
    messages = evidence.capture.messages
    beats = messages.op_message[messages.ops_named({"heartbeat_worker"})]
    idle = messages.kind == MessageKind.HANDSHAKE
    idle[beats] = True
    answers = messages.answer[beats]
    idle[answers[answers != NONE]] = True
    return int((np.isin(messages.flow, flows) & ~idle).sum())


FAR_WORKER = Kind(
    name="far worker",
    meaning="A worker is much farther from the scheduler than the others.",
    threshold=(
        f"its smallest RTT is {FAR_MS:.0f} ms longer than the median of the other workers and"
        f" {FAR_RATIO:.0f} times theirs, and messages to and from it took {COSTLY_S} s longer in all"
    ),
    advice="Start workers near their scheduler, or look for a detour of their packets (traceroute, a VPN).",
    effects=frozenset({"slow link"}) | DELAYS,
    detect=find_far_worker,
)
