"""Packets that are lost, late or out of order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence, looks_delayed
from daskwire.analysis.problems.evidence.losses import PairLoss, largest_arriving
from daskwire.analysis.problems.evidence.retransmissions import (
    SECOND_NS,
    Interval,
    hull,
    intervals,
    merged,
    seconds,
    seconds_by_flow,
)
from daskwire.analysis.problems.evidence.traffic import Node
from daskwire.analysis.problems.finding import (
    COSTLY_S,
    DELAYS,
    LOSSES,
    Finding,
    Kind,
    both_directions,
    counted,
    is_cheap,
    notes_if_cheap,
    percent,
)
from daskwire.decoder.net.segments import ACK, SYN

# Packets that are lost again and again in one direction.


def find_loss(evidence: Evidence) -> Iterator[Finding]:
    """Yield pairs that lose packets again and again."""
    yield from notes_if_cheap(map(_loss_finding, evidence.losses.lossy), COSTLY_S / 2)


def _loss_finding(loss: PairLoss) -> Finding:
    number, total = len(loss.waits), loss.data_segments
    side = "behind" if loss.is_behind else "before"
    share = number / max(total, 1)
    what = f"{number} of {total:,} data segments ({percent(share)}) were lost, {side} the capture point"
    cost_s = sum(seconds([wait]) for wait in loss.waits)
    return Finding(LOSS, what, loss.pair, hull(loss.waits), cost_s, 0.9, number, tuple(loss.flows))


LOSS = Kind(
    name="loss",
    meaning="Packets are lost again and again in one direction.",
    threshold=(
        "at least 5 segments in 4 separate episodes, and 0.1 % of the data segments between two hosts, and"
        f" their retransmission cost {COSTLY_S / 2} s in all: the sender slows down as well"
    ),
    advice="Check error and drop counters on the path: ip -s link, ethtool -S, tc -s qdisc.",
    filter="tcp.analysis.retransmission",
    effects=frozenset({"retransmission time-outs"}) | DELAYS,
    is_on_path=True,
    detect=find_loss,
)


# Outages: for a while no packet passed, so TCP waited for its timer.

TIMEOUT_NS = 180_000_000  # Linux waits at least 200 ms for its timer


def find_retransmission_timeouts(evidence: Evidence) -> Iterator[Finding]:
    """Yield outages, each at the host that most of its retransmissions concern."""
    events = evidence.losses.others
    events = events.take(events.time_ns - events.previous_ns >= TIMEOUT_NS)
    waits = intervals(events.previous_ns, events.time_ns)
    flows = events.flow.tolist()
    hosts: defaultdict[Node, list[int]] = defaultdict(list)
    for begin, end in merged(waits, SECOND_NS // 2):
        inside = [index for index, wait in enumerate(waits) if begin <= wait[0] and wait[1] <= end]
        nodes = Counter(
            (evidence.pairs[flows[index]][0], node)
            for index in inside
            for node in evidence.pairs[flows[index]][1:]
        )
        hosts[nodes.most_common(1)[0][0]] += inside
    for (cluster, node), indices in sorted(hosts.items()):
        own = [index for index in indices if evidence.while_running(cluster, waits[index])]
        if own:
            yield _outage(evidence, cluster, node, [flows[i] for i in own], [waits[i] for i in own])


def _outage(evidence: Evidence, cluster: str, node: str, flows: list[int], waits: list[Interval]) -> Finding:
    peers = {name for flow in flows for name in evidence.pairs[flow][1:]} - {node}
    outages = merged(waits, SECOND_NS // 2)
    what = (
        f"no packet passed for {seconds(outages):.1f} s ({counted(len(outages), 'episode')},"
        f" {counted(len(waits), 'time-out')} on {counted(len(set(flows)), 'connection')})"
    )
    pair = cluster, node, next(iter(peers)) if len(peers) == 1 else ""
    cost_s, number = seconds_by_flow(flows, waits), len(waits)
    flows = sorted(set(flows))
    return Finding(
        RETRANSMISSION_TIMEOUTS,
        what,
        pair,
        hull(waits),
        cost_s,
        0.9,
        number,
        tuple(flows),
        is_cheap(cost_s),
    )


RETRANSMISSION_TIMEOUTS = Kind(
    name="retransmission time-outs",
    meaning="For a while no packet passed, so TCP waited for its timer.",
    threshold=f"gaps of 180 ms or more until a retransmission cost {COSTLY_S} s, in few episodes",
    advice="Look for a flapping link or a frozen host: ip -s link, dmesg, the switch's log.",
    filter="tcp.analysis.retransmission",
    effects=frozenset({"unanswered connects", "loss", "blocked worker loop"}) | DELAYS,
    is_on_path=True,
    detect=find_retransmission_timeouts,
)


# Packets that overtake each other.

OVERTAKEN_NUMBER, OVERTAKEN_SHARE = 10, 0.005


def find_reordering(evidence: Evidence) -> Iterator[Finding]:
    late = evidence.late
    for pair, group in evidence.by_pair(np.unique(late.flow[late.reordered]).tolist()).items():
        own = late.reordered & np.isin(late.flow, group)
        number, total = int(own.sum()), evidence.data_segments(pair)
        if number < max(OVERTAKEN_NUMBER, OVERTAKEN_SHARE * total):
            continue
        waits = intervals(late.hole_ns[own], late.time_ns[own])
        median_ms = float(np.median(late.time_ns[own] - late.hole_ns[own])) / 1e6
        what = (
            f"{number} of {total:,} data segments ({percent(number / total)}) were overtaken by later ones,"
            f" by {median_ms:.2f} ms (median)"
        )
        is_note = not evidence.while_running(pair[0], hull(waits))
        yield Finding(REORDERING, what, pair, hull(waits), seconds(waits), 0.9, number, tuple(group), is_note)


REORDERING = Kind(
    name="reordering",
    meaning="Packets overtake each other in one direction, so TCP retransmits without need.",
    threshold="at least 10 segments, and 0.5 % of the data segments from one host to another",
    advice="Look for parallel paths without flow hashing, such as bonding in mode balance-rr.",
    filter="tcp.analysis.out_of_order || tcp.analysis.retransmission",
    effects=frozenset({"loss"}),
    is_on_path=True,
    detect=find_reordering,
)


# Large packets vanish while small ones pass.


def find_mtu_black_hole(evidence: Evidence) -> Iterator[Finding]:
    events, stuck = evidence.retransmissions, evidence.losses.black_holes
    for pair, group in evidence.by_pair(sorted(stuck)).items():
        own = np.isin(events.flow, group)
        size, number = int(events.length[own].max()), int(own.sum())
        arriving = largest_arriving(evidence, group[0], stuck[group[0]])
        waits = [(int(events.previous_ns[events.flow == f].min()), evidence.last_ns(f)) for f in group]
        what = (
            f"segments of {size:,} bytes were retransmitted {counted(number, 'time')} and never acknowledged"
            f" on {counted(len(group), 'connection')}; up to {arriving:,} bytes arrive"
        )
        cost_s = sum(seconds([wait]) for wait in waits)
        yield Finding(MTU_BLACK_HOLE, what, pair, hull(waits), cost_s, 0.95, number, tuple(group))


MTU_BLACK_HOLE = Kind(
    name="MTU black hole",
    meaning="Large packets vanish while small ones pass: a link has a smaller MTU than the senders assume.",
    threshold=(
        "a segment was sent at least 4 times over 1 s or more and never acknowledged, and no segment as"
        " large was acknowledged between these hosts, although smaller ones were"
    ),
    advice="Compare the MTU of all interfaces on the path (ping -M do -s 1472), and let ICMP pass.",
    filter="tcp.analysis.retransmission && tcp.len >= 400",
    effects=frozenset({"mid-stream reset", "blocked worker loop", "zero window"}) | LOSSES,
    is_on_path=True,
    detect=find_mtu_black_hole,
)


# Connections whose other end no longer answers.


def find_half_open_connection(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per host that no longer answers, and one for two that do not answer each other."""
    yield from both_directions(_silent_hosts(evidence))


def _silent_hosts(evidence: Evidence) -> Iterator[Finding]:
    events, stuck = evidence.retransmissions, evidence.losses.half_open
    hosts: defaultdict[Node, list[int]] = defaultdict(list)
    for flow in sorted(stuck):
        cluster, _, destination = evidence.pairs[flow]
        hosts[cluster, destination].append(flow)
    for (cluster, node), group in sorted(hosts.items()):
        waits = [(int(events.previous_ns[stuck[flow]]), evidence.last_ns(flow)) for flow in group]
        number = int(np.isin(events.flow, group).sum())
        what = (
            f"no longer answers on {counted(len(group), 'connection')}:"
            f" {counted(number, 'retransmission')} in vain"
        )
        cost_s = sum(seconds([wait]) for wait in waits)
        is_note = not evidence.while_running(cluster, hull(waits))
        peers = {evidence.pairs[flow][1] for flow in group}
        pair = cluster, node, peers.pop() if len(peers) == 1 else ""
        yield Finding(
            HALF_OPEN_CONNECTION, what, pair, hull(waits), cost_s, 0.9, len(group), tuple(group), is_note
        )


HALF_OPEN_CONNECTION = Kind(
    name="half-open connection",
    meaning="A host keeps connections that their other end no longer answers.",
    threshold=(
        "a segment was sent at least 4 times over 1 s or more, and the peer never answered on that"
        " connection again; its keep-alives, retransmissions, FIN and RST are no answers"
    ),
    advice="Check whether the peer's host is up, and whether a firewall forgot the connection.",
    filter="tcp.analysis.retransmission || tcp.analysis.keep_alive",
    effects=frozenset(
        {"mid-stream reset", "lost worker", "unanswered connects", "retransmission time-outs", "loss"}
    )
    | DELAYS,
    detect=find_half_open_connection,
)


# Small writes that wait for a delayed acknowledgement (Nagle's algorithm).

AT_ONCE_NS = 2_000_000
MIN_DELAYED = 10


def find_delayed_acks(evidence: Evidence) -> Iterator[Finding]:
    yield from notes_if_cheap(_delayed_acks(evidence))


def _delayed_acks(evidence: Evidence) -> Iterator[Finding]:
    """Yield senders that wait for delayed ACKs: their next segment follows such an ACK at once."""
    samples = evidence.rtts
    late = np.flatnonzero(looks_delayed(samples.rtt_ns))
    groups: defaultdict[Node, list[tuple[Interval, int]]] = defaultdict(list)
    for flow in np.unique(samples.flow[late]).tolist():
        index = late[samples.flow[late] == flow]
        begin, end = samples.time_ns[index] - samples.rtt_ns[index], samples.time_ns[index]
        for wait in zip(begin.tolist(), end.tolist(), strict=True):
            if _sender_waited(evidence, flow, wait):
                groups[evidence.pairs[flow][:2]].append((wait, flow))
    for node, events in sorted(groups.items()):
        if len(events) < MIN_DELAYED:
            continue
        waits = [wait for wait, _ in events]
        cost_s = sum(seconds([wait]) for wait in waits)
        median_ms = float(np.median([end - begin for begin, end in waits])) / 1e6
        flows = tuple(sorted({flow for _, flow in events}))
        peers = sorted({evidence.pairs[flow][2] for flow in flows})
        what = (
            f"{len(events)} segments to {', '.join(peers)} were sent only after an ACK that came"
            f" {median_ms:.0f} ms late (median)"
        )
        pair = *node, peers[0] if len(peers) == 1 else ""
        yield Finding(DELAYED_ACKS, what, pair, hull(waits), cost_s, 0.8, len(events), flows)


def _sender_waited(evidence: Evidence, flow: int, wait: Interval) -> bool:
    """Return whether a sender was quiet until a pure ACK, and sent at once after it."""
    segments = evidence.capture.segments
    sent_ns = segments.time_ns[evidence.data_rows([flow])]
    following = int(np.searchsorted(sent_ns, wait[1]))
    if not 0 < following < len(sent_ns) or sent_ns[following] - wait[1] > AT_ONCE_NS:
        return False
    acks = evidence.rows(flow ^ 1)
    acks = acks[(segments.length[acks] == 0) & (segments.flags[acks] & (ACK | SYN) == ACK)]
    return bool(sent_ns[following - 1] <= wait[0] + AT_ONCE_NS and (segments.time_ns[acks] == wait[1]).any())


DELAYED_ACKS = Kind(
    name="delayed ACKs",
    meaning="Small writes wait for the receiver's delayed acknowledgement (Nagle's algorithm).",
    threshold=(
        "at least 10 segments were sent right after an ACK that came 35 to 60 ms or 180 to 220 ms late, and"
        f" that cost {COSTLY_S} s"
    ),
    advice="Set TCP_NODELAY, or write each message at once.",
    filter="tcp.analysis.ack_rtt > 0.03",
    detect=find_delayed_acks,
)
