"""Connects that nothing answers, or only later."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.connects import Failure
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import COSTLY_S, DELAYS, Finding, Kind, connect_findings


def detect(evidence: Evidence) -> Iterator[Finding]:
    yield from connect_findings(KIND, evidence.connects_that(Failure.UNANSWERED), evidence)


KIND = Kind(
    name="unanswered connects",
    meaning="Nothing answers attempts to connect.",
    threshold=(
        f"SYNs had no answer, or only a later one had, between start-up and shutdown for {COSTLY_S} s, or"
        " always at a port of Dask"
    ),
    advice="Check whether the host is up, firewalls on the path, and whether the listener's backlog is full.",
    filter="tcp.flags.syn == 1 && tcp.flags.ack == 0",
    effects=DELAYS,
    detect=detect,
)
