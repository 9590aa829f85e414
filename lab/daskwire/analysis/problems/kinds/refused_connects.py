"""Connects to a port on which nobody listens."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.connects import Failure
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import COSTLY_S, Finding, Kind, connect_findings


def detect(evidence: Evidence) -> Iterator[Finding]:
    yield from connect_findings(KIND, evidence.connects_that(Failure.REFUSED), evidence)


KIND = Kind(
    name="refused connects",
    meaning="Nobody listens where a process connects to.",
    threshold=(
        f"connections were refused between start-up and shutdown for {COSTLY_S} s, or at a Dask port always"
    ),
    advice="Check whether the process on that port has ended, and why.",
    filter="tcp.flags.reset == 1",
    effects=frozenset({"standstill"}),
    detect=detect,
)
