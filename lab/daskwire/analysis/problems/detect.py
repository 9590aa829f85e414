"""Run all detectors, and build the table of problems."""

from __future__ import annotations

from dataclasses import replace

from daskwire.analysis.problems.display_filter import display_filter
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import SECOND_NS
from daskwire.analysis.problems.finding import Finding, is_cheap
from daskwire.analysis.problems.joining import joined
from daskwire.analysis.problems.kinds import KINDS
from daskwire.analysis.problems.ranking import ranked
from daskwire.base.schema import Table, add_row, empty
from daskwire.decoder.capture import Capture


def find(capture: Capture) -> list[Finding]:
    """Return all findings of a capture: problems by cost, then notes."""
    evidence = Evidence(capture)
    findings = [finding for kind in KINDS.values() for finding in kind.detect(evidence)]
    return ranked(joined([_bounded(finding, evidence) for finding in findings], evidence))


def _bounded(finding: Finding, evidence: Evidence) -> Finding:
    """Limit a cost to the time in which packets were captured.

    Across an interruption of the recording, or to a packet with a false time, nobody is known to have waited.
    """
    if finding.when is None or not (gap_s := evidence.gap_s(finding.when)):
        return finding
    connections = max(len({flow >> 1 for flow in finding.flows}), 1)
    covered_s = (finding.when[1] - finding.when[0]) / SECOND_NS - gap_s
    cost_s = min(finding.cost_s, connections * covered_s)
    return replace(finding, cost_s=cost_s, is_note=finding.is_note or is_cheap(cost_s))


def problems(capture: Capture) -> Table:
    """Build one row per finding."""
    table = empty("problems")
    for finding in find(capture):
        add_row(
            table,
            finding.kind.name,
            "note" if finding.is_note else "problem",
            *finding.pair[1:],
            *(finding.when or (None, None)),
            finding.number,
            round(finding.cost_s, 3),
            round(100 * finding.certainty),
            finding.what,
            finding.kind.advice,
            display_filter(finding, capture.connections),
            finding.pair[0],
        )
    return table
