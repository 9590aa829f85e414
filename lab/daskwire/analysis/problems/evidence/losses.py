"""Divide retransmissions among the problems that explain them. Each one belongs to a single problem.

In this order, because each step explains away what the next one would misread:

1. A flow is *stuck* if its last bytes were sent again and again, and never acknowledged. If smaller segments
   arrive, a link stops large ones: an MTU black hole. If the peer is silent, the connection is half open.
2. What the other flows of a pair lost again and again is loss.
3. What is left waited for TCP's timer in few episodes, or mostly in long ones: an outage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskwire.analysis.problems.evidence.retransmissions import (
    SECOND_NS,
    Interval,
    Retransmissions,
    intervals,
    merged,
)
from daskwire.analysis.problems.evidence.traffic import Pair, Traffic
from daskwire.base.arrays import Flags, Ints
from daskwire.decoder.net.segments import ACK, FIN, RST, SYN

BACKED_OFF_NS = 400_000_000  # Linux's timer when it fires for the second time
STUCK_NUMBER = 3  # retransmissions of the same bytes
LARGE_BYTES = 400  # payload of a segment that an MTU could stop
BURST_NS = 5_000_000  # between the header and the body of a message
LOSS_EPISODES = 4  # retransmissions in as many separate episodes are loss, not an outage
LOSS_NUMBER, LOSS_SHARE = 5, 0.001  # lost segments, and their share of a pair's data segments
StuckFlows = dict[int, int]  # flow -> index of its first event among the retransmissions


@dataclass(frozen=True)
class PairLoss:
    """Segments that were lost again and again between two nodes.

    Attributes:
        pair: the nodes.
        flows: the flows that lost segments.
        waits: from each loss, or from the hole that it left, to its repair.
        data_segments: number of segments with payload from one node to the other.
        is_behind: most were lost behind the capture point.
    """

    pair: Pair
    flows: list[int]
    waits: list[Interval]
    data_segments: int
    is_behind: bool


@dataclass(frozen=True)
class Losses:
    """Packets that did not arrive, by the problem that explains them.

    Attributes:
        black_holes: stuck flows whose smaller segments arrive.
        half_open: other stuck flows whose peer is silent.
        lossy: pairs that lose packets again and again.
        others: retransmissions of all other flows.
    """

    black_holes: StuckFlows
    half_open: StuckFlows
    lossy: list[PairLoss]
    others: Retransmissions


def divide_losses(traffic: Traffic) -> Losses:
    """Find the problem that explains each retransmission."""
    events = traffic.retransmissions
    stuck = _stuck_flows(traffic, events)
    black_holes = {flow: first for flow, first in stuck.items() if _is_size_limit(traffic, flow, first)}
    silent = {flow: first for flow, first in stuck.items() if _is_silent(traffic, flow, first)}
    half_open = {flow: first for flow, first in silent.items() if flow not in black_holes}
    rest = events.take(~np.isin(events.flow, [*black_holes, *half_open]))
    lossy = _lossy_pairs(traffic, rest)
    lossy_flows = [flow for loss in lossy for flow in loss.flows]
    return Losses(black_holes, half_open, lossy, rest.take(~np.isin(rest.flow, lossy_flows)))


def _stuck_flows(traffic: Traffic, events: Retransmissions) -> StuckFlows:
    """Find the flows whose last bytes were retransmitted again and again, but never acknowledged."""
    result = {}
    for flow in np.unique(events.flow).tolist():
        index = np.flatnonzero(events.flow == flow)
        position, number = np.unique(events.position[index], return_counts=True)
        repeated = position[number >= STUCK_NUMBER]
        if len(repeated) and traffic.acknowledged(flow) <= int(repeated[0]):
            first = int(index[events.position[index] == repeated[0]][0])
            if events.time_ns[index].max() - events.previous_ns[first] >= SECOND_NS:
                result[flow] = first
    return result


def _is_size_limit(traffic: Traffic, flow: int, first: int) -> bool:
    """Return whether no segment as large as the stuck ones was acknowledged, though the peer's host is up."""
    size = int(traffic.retransmissions.length[first])
    return (
        size >= LARGE_BYTES
        and 0 < largest_arriving(traffic, flow, first) < size
        and _is_alive(traffic, flow, first)
    )


def _is_alive(traffic: Traffic, flow: int, first: int) -> bool:
    """Return whether the host of a flow's receiver sent anything after the first retransmission."""
    senders, start_ns = traffic.capture.senders, traffic.retransmissions.time_ns[first]
    address = senders[flow ^ 1][0]
    return any(senders[f][0] == address and traffic.last_ns(f) > start_ns for f in traffic.flows)


def largest_arriving(traffic: Traffic, flow: int, first: int) -> int:
    """Return the largest payload that arrives since a flow is stuck; without any, the largest before.

    What was sent in one burst with the stuck segments met the same link as they did.
    """
    since_ns = int(traffic.retransmissions.previous_ns[first]) - BURST_NS
    return _largest_acknowledged(traffic, flow, since_ns) or _largest_acknowledged(traffic, flow, 0)


def _largest_acknowledged(traffic: Traffic, flow: int, since_ns: int) -> int:
    """Return the largest payload that was acknowledged between the hosts of a flow, in its direction."""
    pieces, segments, largest = traffic.capture.pieces, traffic.capture.segments, 0
    for other in traffic.flows_of[traffic.pairs[flow]]:
        for index in np.flatnonzero(pieces.flow == other).tolist():
            part = slice(int(pieces.begin[index]), int(pieces.begin[index + 1]))
            arrived = pieces.start[part] + pieces.length[part] <= traffic.acknowledged(other)
            rows = pieces.row[part][arrived]
            rows = rows[segments.time_ns[rows] >= since_ns]
            largest = max(largest, int(segments.length[rows].max(initial=0)))
    return largest


def _is_silent(traffic: Traffic, flow: int, first: int) -> bool:
    """Return whether the peer answered nothing more on the connection.

    An RST, a FIN, a keep-alive and a retransmission are no answers: a peer that receives nothing sends them,
    too.
    """
    segments, start_ns = traffic.capture.segments, traffic.retransmissions.previous_ns[first]
    rows = traffic.rows(flow ^ 1)
    rows = rows[(segments.time_ns[rows] > start_ns) & (segments.flags[rows] & (RST | FIN) == 0)]
    is_resent = np.isin(rows, traffic.capture.disorder.resent)
    return bool((is_resent | _are_keepalives(traffic, flow ^ 1, rows)).all())


def _are_keepalives(traffic: Traffic, flow: int, rows: Ints) -> Flags:
    """Select the segments of a flow that send nothing but a byte that its receiver acknowledged before."""
    segments = traffic.capture.segments
    acks = traffic.rows(flow ^ 1)
    acks = acks[segments.flags[acks] & (ACK | RST) == ACK]
    if not len(acks):
        return np.zeros(len(rows), bool)
    latest = acks[np.maximum(np.searchsorted(acks, rows) - 1, 0)]
    is_next = segments.seq[rows] + np.uint32(1) == segments.ack[latest]
    return np.asarray(is_next & (segments.length[rows] <= 1) & (segments.flags[rows] & SYN == 0))


def _lossy_pairs(traffic: Traffic, events: Retransmissions) -> list[PairLoss]:
    late = traffic.late
    repaired = ~late.reordered
    flows = np.union1d(events.flow, late.flow[repaired]).tolist()
    result = []
    for pair, group in traffic.by_pair(flows).items():
        own, before = events.take(np.isin(events.flow, group)), repaired & np.isin(late.flow, group)
        waits = intervals(own.previous_ns, own.time_ns)
        waits += intervals(late.hole_ns[before], late.time_ns[before])
        waits = [wait for wait in waits if traffic.while_running(pair[0], wait)]
        total = traffic.data_segments(pair)
        episodes = len(merged(waits, SECOND_NS // 10))
        is_lossy = len(waits) >= max(LOSS_NUMBER, LOSS_SHARE * total) and episodes >= LOSS_EPISODES
        if is_lossy and _outage_ns(own) < sum(stop - start for start, stop in waits) / 2:
            result.append(PairLoss(pair, group, waits, total, bool(len(own.flow) >= before.sum())))
    return result


def _outage_ns(events: Retransmissions) -> int:
    """Return how long segments waited for a timer that fired more than once: then nothing passed at all."""
    waits_ns = events.time_ns - events.previous_ns
    ends = np.stack([events.flow, events.position])
    _, inverse, number = np.unique(ends, axis=1, return_inverse=True, return_counts=True)
    return int(waits_ns[(number[inverse.ravel()] > 1) | (waits_ns >= BACKED_OFF_NS)].sum())
