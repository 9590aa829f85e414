"""Connections whose other end no longer answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import hull, seconds
from daskwire.analysis.problems.evidence.traffic import Node
from daskwire.analysis.problems.finding import DELAYS, Finding, Kind, both_directions, counted


def detect(evidence: Evidence) -> Iterator[Finding]:
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
        yield Finding(KIND, what, pair, hull(waits), cost_s, 0.9, len(group), tuple(group), is_note)


KIND = Kind(
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
    detect=detect,
)
