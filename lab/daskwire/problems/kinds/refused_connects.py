"""Connects to a port on which nobody listens."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.problems.evidence.connects import Failure
from daskwire.problems.evidence.evidence import Evidence
from daskwire.problems.finding import COSTLY_S, Finding, Kind, connect_finding


def detect(evidence: Evidence) -> Iterator[Finding]:
    for group in evidence.connects_that(Failure.REFUSED):
        yield connect_finding(KIND, "was refused", group, evidence)


KIND = Kind(
    name="refused connects",
    meaning="Nobody listens where a process connects to.",
    threshold=f"connections were refused after the start-up of the cluster for {COSTLY_S} s",
    advice="Check whether the process on that port has ended, and why.",
    filter="tcp.flags.reset == 1",
    detect=detect,
)
