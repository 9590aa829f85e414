"""Connections of which one direction takes a path that was not captured."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import Finding, Kind, counted


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield pairs with connections of which one direction is missing, if most others are complete."""
    single, complete = evidence.one_way
    if evidence.is_one_way:
        return  # the capture point is wrong
    for (cluster, source, destination), flows in evidence.by_pair(single).items():
        missing = int(evidence.capture.extents.missing[[flow ^ 1 for flow in flows]].sum())
        what = (
            f"{counted(len(flows), 'connection')} without packets from {destination} to {source} in the"
            f" capture, though {missing:,} bytes of them were acknowledged; {complete} other connections have"
            " both directions"
        )
        pair = cluster, destination, source
        yield Finding(KIND, what, pair, evidence.span(flows), 0.0, 0.9, len(flows), tuple(flows))


KIND = Kind(
    name="asymmetric path",
    meaning="Packets of a connection take another path than their answers.",
    threshold=(
        "one direction of some connections is not in the capture, though it was acknowledged, and most"
        " connections have both"
    ),
    advice="Compare the routes of both hosts (ip route get), and look for two interfaces in one subnet.",
    filter="tcp.analysis.ack_lost_segment",
    effects=frozenset({"incomplete capture", "unanswered connects", "standstill", "unregistered worker"}),
    detect=detect,
)
