"""Detect what keeps packets from arriving: MTU black holes, half-open connections, outages, loss."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from daskwire.arrays import Ints
from daskwire.net.segments import RST
from daskwire.problems.finding import Finding, Interval, counted, is_cheap, notes_if_cheap, percent
from daskwire.problems.kinds import COSTLY_S
from daskwire.problems.retransmissions import Retransmissions
from daskwire.problems.view import (
    SECOND_NS,
    View,
    hull,
    intervals,
    merged,
    seconds,
    seconds_by_flow,
)

TIMEOUT_NS = 180_000_000  # Linux waits at least 200 ms for its timer
PERSISTENT = 3  # retransmissions of the same bytes
NEARLY_FULL = 400  # bytes of a segment that an MTU could stop
EPISODES = 4  # retransmissions in as many separate episodes are loss, not an outage
LOSSES, LOSS_SHARE = 5, 0.001  # lost segments, and their share of a pair's data segments
OVERTAKEN, OVERTAKEN_SHARE = 10, 0.005
Stuck = dict[int, int]  # flow -> index of its first event among the retransmissions


def losses(view: View) -> Iterator[Finding]:
    """Yield findings about packets that did not arrive. Each retransmission belongs to one of them."""
    events = view.retransmissions
    stuck = _stuck_flows(view, events)
    black_holes = {flow: first for flow, first in stuck.items() if _is_size_limit(view, flow, first)}
    yield from _black_holes(view, black_holes)
    silent = {flow: first for flow, first in stuck.items() if _is_silent(view, flow, first)}
    dead = {flow: first for flow, first in silent.items() if flow not in black_holes}
    yield from _half_open(view, dead)
    rest = events.take(~np.isin(events.flow, [*black_holes, *dead]))
    losses = list(_loss(view, rest))
    yield from notes_if_cheap(losses, COSTLY_S / 2)
    lossy = [flow for finding in losses for flow in finding.flows]
    yield from _time_outs(view, rest.take(~np.isin(rest.flow, lossy)))
    yield from _reordering(view)


def _stuck_flows(view: View, events: Retransmissions) -> Stuck:
    """Find the flows whose last bytes were retransmitted again and again, but never acknowledged."""
    result = {}
    for flow in np.unique(events.flow).tolist():
        index = np.flatnonzero(events.flow == flow)
        position, number = np.unique(events.position[index], return_counts=True)
        repeated = position[number >= PERSISTENT]
        if len(repeated) and view.acknowledged(flow) <= int(repeated[0]):
            first = int(index[events.position[index] == repeated[0]][0])
            if events.time_ns[index].max() - events.previous_ns[first] >= SECOND_NS:
                result[flow] = first
    return result


def _is_size_limit(view: View, flow: int, first: int) -> bool:
    """Return whether no segment as large as the stuck ones was acknowledged, though the peer's host is up."""
    size, arriving = int(view.retransmissions.length[first]), _arriving(view, flow, first)
    return size >= NEARLY_FULL and 0 < arriving < size and _is_alive(view, flow, first)


def _is_alive(view: View, flow: int, first: int) -> bool:
    """Return whether the host of a flow's receiver sent anything after the first retransmission."""
    address, begin_ns = view.capture.senders[flow ^ 1][0], view.retransmissions.time_ns[first]
    return any(view.capture.senders[f][0] == address and view.last_ns(f) > begin_ns for f in view.flows)


def _arriving(view: View, flow: int, first: int) -> int:
    """Return the largest payload that arrives since a flow is stuck; without any, the largest before."""
    since_ns = int(view.retransmissions.previous_ns[first])
    return _largest_acknowledged(view, flow, since_ns) or _largest_acknowledged(view, flow, 0)


def _largest_acknowledged(view: View, flow: int, since_ns: int) -> int:
    """Return the largest payload that was acknowledged between the hosts of a flow, in its direction."""
    pieces, segments, largest = view.capture.pieces, view.capture.segments, 0
    for other in view.flows_of[view.pairs[flow]]:
        for index in np.flatnonzero(pieces.flow == other).tolist():
            part = slice(int(pieces.begin[index]), int(pieces.begin[index + 1]))
            arrived = pieces.start[part] + pieces.length[part] <= view.acknowledged(other)
            rows = pieces.row[part][arrived]
            rows = rows[segments.time_ns[rows] >= since_ns]
            largest = max(largest, int(segments.length[rows].max(initial=0)))
    return largest


def _black_holes(view: View, stuck: Stuck) -> Iterator[Finding]:
    events = view.retransmissions
    for pair, group in view.by_pair(sorted(stuck)).items():
        own = np.isin(events.flow, group)
        size, number = int(events.length[own].max()), int(own.sum())
        arriving = _arriving(view, group[0], stuck[group[0]])
        waits = [(int(events.previous_ns[events.flow == f].min()), view.last_ns(f)) for f in group]
        what = (
            f"segments of {size:,} bytes were retransmitted {counted(number, 'time')} and never acknowledged"
            f" on {counted(len(group), 'connection')}; up to {arriving:,} bytes arrive"
        )
        cost_s = sum(seconds([wait]) for wait in waits)
        yield Finding("MTU black hole", what, pair, hull(waits), cost_s, 0.95, number, tuple(group))


def _is_silent(view: View, flow: int, first: int) -> bool:
    """Return whether the peer sent nothing more (but an RST) on the connection."""
    segments, begin = view.capture.segments, view.retransmissions.previous_ns[first]
    answers = view.rows(flow ^ 1)
    return not ((segments.time_ns[answers] > begin) & (segments.flags[answers] & RST == 0)).any()


def _half_open(view: View, dead: Stuck) -> Iterator[Finding]:
    """Yield one finding per host that no longer answers."""
    events = view.retransmissions
    hosts: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for flow in sorted(dead):
        cluster, _, destination = view.pairs[flow]
        hosts[cluster, destination].append(flow)
    for (cluster, node), group in sorted(hosts.items()):
        waits = [(int(events.previous_ns[dead[flow]]), view.last_ns(flow)) for flow in group]
        number = int(np.isin(events.flow, group).sum())
        what = (
            f"no longer answers on {counted(len(group), 'connection')}:"
            f" {counted(number, 'retransmission')} in vain"
        )
        cost_s = sum(seconds([wait]) for wait in waits)
        is_note = not view.while_running(cluster, hull(waits))
        peers = {view.pairs[flow][1] for flow in group}
        pair = cluster, node, peers.pop() if len(peers) == 1 else ""
        yield Finding(
            "half-open connection", what, pair, hull(waits), cost_s, 0.9, len(group), tuple(group), is_note
        )


def _loss(view: View, events: Retransmissions) -> Iterator[Finding]:
    """Yield pairs that lose packets again and again."""
    late = view.late
    repaired = ~late.reordered
    flows = np.union1d(events.flow, late.flow[repaired]).tolist()
    for pair, group in view.by_pair(flows).items():
        behind, before = np.isin(events.flow, group), repaired & np.isin(late.flow, group)
        waits = intervals(events.previous_ns[behind], events.time_ns[behind])
        waits += intervals(late.hole_ns[before], late.time_ns[before])
        waits = [wait for wait in waits if view.while_running(pair[0], wait)]
        number, total = len(waits), view.data_segments(pair)
        episodes = len(merged(waits, SECOND_NS // 10))
        if number < max(LOSSES, LOSS_SHARE * total) or episodes < EPISODES:
            continue
        side = "behind" if behind.sum() >= before.sum() else "before"
        share = number / max(total, 1)
        what = f"{number} of {total:,} data segments ({percent(share)}) were lost, {side} the capture point"
        cost_s = sum(seconds([wait]) for wait in waits)
        yield Finding("loss", what, pair, hull(waits), cost_s, 0.9, number, tuple(group))


def _time_outs(view: View, events: Retransmissions) -> Iterator[Finding]:
    """Yield outages, each at the host that most of its retransmissions concern."""
    events = events.take(events.time_ns - events.previous_ns >= TIMEOUT_NS)
    waits = intervals(events.previous_ns, events.time_ns)
    flows = events.flow.tolist()
    hosts: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for begin, end in merged(waits, SECOND_NS // 2):
        inside = [index for index, wait in enumerate(waits) if begin <= wait[0] and wait[1] <= end]
        nodes = Counter(
            (view.pairs[flows[index]][0], node) for index in inside for node in view.pairs[flows[index]][1:]
        )
        hosts[nodes.most_common(1)[0][0]] += inside
    for (cluster, node), indices in sorted(hosts.items()):
        own = [index for index in indices if view.while_running(cluster, waits[index])]
        if own:
            yield _outage(view, cluster, node, [flows[i] for i in own], [waits[i] for i in own])


def _outage(view: View, cluster: str, node: str, flows: list[int], waits: list[Interval]) -> Finding:
    peers = {name for flow in flows for name in view.pairs[flow][1:]} - {node}
    outages = merged(waits, SECOND_NS // 2)
    what = (
        f"no packet passed for {seconds(outages):.1f} s ({counted(len(outages), 'episode')},"
        f" {counted(len(waits), 'time-out')} on {counted(len(set(flows)), 'connection')})"
    )
    pair = cluster, node, next(iter(peers)) if len(peers) == 1 else ""
    cost_s, number = seconds_by_flow(flows, waits), len(waits)
    flows = sorted(set(flows))
    return Finding(
        "retransmission time-outs",
        what,
        pair,
        hull(waits),
        cost_s,
        0.9,
        number,
        tuple(flows),
        is_cheap(cost_s),
    )


def _reordering(view: View) -> Iterator[Finding]:
    late = view.late
    for pair, group in view.by_pair(_flows(late.flow[late.reordered])).items():
        own = late.reordered & np.isin(late.flow, group)
        number, total = int(own.sum()), view.data_segments(pair)
        if number < max(OVERTAKEN, OVERTAKEN_SHARE * total):
            continue
        waits = intervals(late.hole_ns[own], late.time_ns[own])
        median_ms = float(np.median(late.time_ns[own] - late.hole_ns[own])) / 1e6
        what = (
            f"{number} of {total:,} data segments ({percent(number / total)}) were overtaken by later ones,"
            f" by {median_ms:.2f} ms (median)"
        )
        is_note = not view.while_running(pair[0], hull(waits))
        yield Finding(
            "reordering", what, pair, hull(waits), seconds(waits), 0.9, number, tuple(group), is_note
        )


def _flows(flow: Ints) -> list[int]:
    flows: list[int] = np.unique(flow).tolist()
    return flows
