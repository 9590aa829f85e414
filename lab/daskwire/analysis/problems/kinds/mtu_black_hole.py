"""Large packets vanish while small ones pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import hull, seconds
from daskwire.analysis.problems.evidence.losses import largest_arriving
from daskwire.analysis.problems.finding import LOSSES, Finding, Kind, counted


def detect(evidence: Evidence) -> Iterator[Finding]:
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
        yield Finding(KIND, what, pair, hull(waits), cost_s, 0.95, number, tuple(group))


KIND = Kind(
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
    detect=detect,
)
