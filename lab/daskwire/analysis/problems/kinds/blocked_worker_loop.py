"""Workers that sent nothing although a heartbeat was due."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import Interval, hull, seconds
from daskwire.analysis.problems.evidence.traffic import Node
from daskwire.analysis.problems.finding import DELAYS, Finding, Kind


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield the pauses of each worker, separately those that all workers share.

    If all workers pause together, they import a library, or the machine that they share is overloaded.
    """
    for node, lateness in evidence.lateness.items():
        alone = [pause for pause in lateness.silent if pause not in lateness.shared]
        if lateness.shared:
            together = ", together with all other workers"
            yield _finding(evidence, node, lateness.shared, together, is_note=True)
        if alone:
            yield _finding(evidence, node, alone)


def _finding(
    evidence: Evidence, node: Node, pauses: list[Interval], together: str = "", is_note: bool = False
) -> Finding:
    cost_s, longest_s = seconds(pauses), max(stop - start for start, stop in pauses) / 1e9
    times = f" ({len(pauses)} times, {cost_s:.1f} s in all)" if len(pauses) > 1 else ""
    what = f"sent no message for {longest_s:.1f} s{times}, though heartbeats were due{together}"
    flows = tuple(flow for flow in evidence.flows if evidence.pairs[flow][:2] == node)
    return Finding(KIND, what, (*node, ""), hull(pauses), cost_s, 0.9, len(pauses), flows, is_note)


KIND = Kind(
    name="blocked worker loop",
    meaning="A worker's event loop was blocked: it sent nothing although a heartbeat was due.",
    threshold=(
        "no message of the worker for 1 s or more, and for half of an interval between its heartbeats that is"
        " at least twice the requested one"
    ),
    advice="Look for code that holds the GIL or blocks the loop, and for a stopped or swapped-out process.",
    effects=frozenset({"zero window"}) | DELAYS,
    detect=detect,
)
