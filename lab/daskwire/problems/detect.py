"""Run all detectors, and build the table of problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from daskwire.capture import Capture
from daskwire.problems.addresses import addresses
from daskwire.problems.captures import captures
from daskwire.problems.connects import connections
from daskwire.problems.finding import Finding, display_filter, ranked
from daskwire.problems.kinds import KINDS
from daskwire.problems.links import links
from daskwire.problems.loops import loops
from daskwire.problems.losses import losses
from daskwire.problems.view import View
from daskwire.schema import Table, add_row, empty

DETECTORS: tuple[Callable[[View], Iterator[Finding]], ...] = (
    captures, addresses, losses, links, connections, loops,
)  # fmt: skip


def find(capture: Capture) -> list[Finding]:
    """Return all findings of a capture: problems by cost, then notes."""
    view = View(capture)
    return ranked([finding for detect in DETECTORS for finding in detect(view)])


def problems(capture: Capture) -> Table:
    """Build one row per finding."""
    table = empty("problems")
    for finding in find(capture):
        add_row(
            table,
            finding.kind,
            "note" if finding.is_note else "problem",
            *finding.pair[1:],
            *(finding.when or (None, None)),
            finding.number,
            round(finding.cost_s, 3),
            round(100 * finding.certainty),
            finding.what,
            KINDS[finding.kind].advice,
            display_filter(finding, capture.connections),
            finding.pair[0],
        )
    return table
