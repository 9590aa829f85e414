"""Small writes that wait for a delayed acknowledgement (Nagle's algorithm)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.delays import looks_delayed
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import Interval, hull, seconds
from daskwire.analysis.problems.evidence.traffic import Node
from daskwire.analysis.problems.finding import COSTLY_S, Finding, Kind, notes_if_cheap
from daskwire.decoder.net.segments import ACK, SYN

AT_ONCE_NS = 2_000_000
MIN_DELAYED = 10


def detect(evidence: Evidence) -> Iterator[Finding]:
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
        yield Finding(KIND, what, pair, hull(waits), cost_s, 0.8, len(events), flows)


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


KIND = Kind(
    name="delayed ACKs",
    meaning="Small writes wait for the receiver's delayed acknowledgement (Nagle's algorithm).",
    threshold=(
        "at least 10 segments were sent right after an ACK that came 35 to 60 ms or 180 to 220 ms late, and"
        f" that cost {COSTLY_S} s"
    ),
    advice="Set TCP_NODELAY, or write each message at once.",
    filter="tcp.analysis.ack_rtt > 0.03",
    detect=detect,
)
