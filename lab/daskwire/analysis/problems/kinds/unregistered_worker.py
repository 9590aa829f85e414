"""Workers that did not join their cluster."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import SECOND_NS
from daskwire.analysis.problems.finding import Finding, Kind
from daskwire.analysis.tables.participants import JOINED, NO_ANSWER, departure, joined, participants

PATIENCE_NS = 3 * SECOND_NS


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield processes whose registration the scheduler refused or did not answer."""
    capture = evidence.capture
    for participant in participants(capture):
        answer = joined(capture, participant)
        if answer in ("", JOINED):
            continue
        flow = participant.flow
        start_ns = int(capture.messages.time_ns[participant.registration])
        end = departure(capture, flow)
        when = start_ns, end.time_ns if end else evidence.end_ns
        if answer == NO_ANSWER and when[1] - start_ns < PATIENCE_NS:
            continue
        cost_s = (when[1] - start_ns) / 1e9
        detail = f"had no answer for {cost_s:.1f} s" if answer == NO_ANSWER else f"was {answer}"
        what = f"the registration of this {participant.role} {detail}"
        yield Finding(KIND, what, evidence.pairs[flow], when, cost_s, 0.95, flows=(flow,))


KIND = Kind(
    name="unregistered worker",
    meaning="A worker or client did not join its cluster.",
    threshold="the scheduler refused its registration, or did not answer it for 3 s or more",
    advice="Look in its log and in the scheduler's: names that are taken, versions that differ, a busy loop.",
    filter="tcp.len > 0",
    detect=detect,
)
