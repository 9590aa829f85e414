"""Run all detectors, and build the table of problems."""

from __future__ import annotations

from daskwire.capture import Capture
from daskwire.problems.display_filter import display_filter
from daskwire.problems.evidence.evidence import Evidence
from daskwire.problems.finding import Finding
from daskwire.problems.kinds import KINDS
from daskwire.problems.ranking import ranked
from daskwire.schema import Table, add_row, empty


def find(capture: Capture) -> list[Finding]:
    """Return all findings of a capture: problems by cost, then notes."""
    evidence = Evidence(capture)
    return ranked([finding for kind in KINDS.values() for finding in kind.detect(evidence)])


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
