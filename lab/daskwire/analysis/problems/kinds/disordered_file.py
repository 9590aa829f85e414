"""Files whose packets are not in order of time."""

from __future__ import annotations

from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import Finding, Kind


def detect(evidence: Evidence) -> Iterator[Finding]:
    for file in evidence.capture.files:
        if number := file.progress.disordered:
            what = f"{file.path}: {number:,} of its packets were out of order; all are sorted by time"
            yield Finding(KIND, what, number=number, is_note=True)


KIND = Kind(
    name="disordered file",
    meaning="Packets in the file are not in order of time.",
    threshold="always a note",
    advice="Nothing: they are sorted.",
    is_about_capture=True,
    detect=detect,
)
