"""Outages: for a while no packet passed, so TCP waited for its timer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import (
    SECOND_NS,
    Interval,
    hull,
    intervals,
    merged,
    seconds,
    seconds_by_flow,
)
from daskwire.analysis.problems.evidence.traffic import Node
from daskwire.analysis.problems.finding import COSTLY_S, DELAYS, Finding, Kind, counted, is_cheap

TIMEOUT_NS = 180_000_000  # Linux waits at least 200 ms for its timer


def detect(evidence: Evidence) -> Iterator[Finding]:
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
        KIND,
        what,
        pair,
        hull(waits),
        cost_s,
        0.9,
        number,
        tuple(flows),
        is_cheap(cost_s),
    )


KIND = Kind(
    name="retransmission time-outs",
    meaning="For a while no packet passed, so TCP waited for its timer.",
    threshold=f"gaps of 180 ms or more until a retransmission cost {COSTLY_S} s, in few episodes",
    advice="Look for a flapping link or a frozen host: ip -s link, dmesg, the switch's log.",
    filter="tcp.analysis.retransmission",
    effects=frozenset({"unanswered connects", "loss", "blocked worker loop"}) | DELAYS,
    is_on_path=True,
    detect=detect,
)
