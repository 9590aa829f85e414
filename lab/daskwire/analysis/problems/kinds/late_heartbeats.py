"""Workers whose heartbeats come late although they send other messages."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.heartbeats import Lateness
from daskwire.analysis.problems.evidence.intervals import hull
from daskwire.analysis.problems.evidence.traffic import Node
from daskwire.analysis.problems.finding import Finding, Kind

LATE_NUMBER, LATE_SHARE = 3, 0.25


def detect(evidence: Evidence) -> Iterator[Finding]:
    for node, lateness in evidence.lateness.items():
        if lateness.late:
            yield _finding(node, lateness)


def _finding(node: Node, lateness: Lateness) -> Finding:
    waits = lateness.late
    longest_ms = max(end - begin for begin, end in waits) / 1e6
    what = (
        f"{len(waits)} of {lateness.number} heartbeats came after up to {longest_ms:,.0f} ms, although the"
        f" scheduler requested {lateness.requested_ms:.0f} ms and the worker sent other messages"
    )
    cost_s = sum((end - begin) / 1e9 - lateness.requested_ms / 1e3 for begin, end in waits)
    is_note = len(waits) < LATE_NUMBER and len(waits) < LATE_SHARE * lateness.number
    return Finding(KIND, what, (*node, ""), hull(waits), cost_s, 0.9, len(waits), is_note=is_note)


KIND = Kind(
    name="late heartbeats",
    meaning="A worker's heartbeats come late although it sends other messages.",
    threshold=(
        "intervals of more than twice what the scheduler requested and 1 s longer, 3 of them or 25 % of all"
    ),
    advice="Compare the worker's CPU with its threads; the scheduler removes workers after worker-ttl.",
    detect=detect,
)
