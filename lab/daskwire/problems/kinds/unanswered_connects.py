"""Connects that nothing answers, or only later."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.problems.evidence.connects import Failure
from daskwire.problems.evidence.evidence import Evidence
from daskwire.problems.finding import COSTLY_S, DELAYS, Finding, Kind, connect_finding


def detect(evidence: Evidence) -> Iterator[Finding]:
    for group in evidence.connects_that(Failure.UNANSWERED):
        how_long = f" for {group.cost_s:.1f} s" if group.is_answered else ""
        yield connect_finding(KIND, f"had no answer{how_long}", group, evidence)


KIND = Kind(
    name="unanswered connects",
    meaning="Nothing answers attempts to connect.",
    threshold=(
        f"SYNs had no answer, or only a later one had, after the start-up of the cluster for {COSTLY_S} s"
    ),
    advice="Check whether the host is up, firewalls on the path, and whether the listener's backlog is full.",
    filter="tcp.flags.syn == 1 && tcp.flags.ack == 0",
    effects=DELAYS,
    detect=detect,
)
