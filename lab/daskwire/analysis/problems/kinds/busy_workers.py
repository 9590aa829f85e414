"""Workers that put off requests for data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import Finding, Kind, counted


def detect(evidence: Evidence) -> Iterator[Finding]:
    table = evidence.transfers
    rows = zip(*(table[name] for name in ("cluster", "source", "destination", "status")), strict=True)
    busy = Counter(tuple(pair) for *pair, status in rows if status == "busy")
    for (cluster, source, destination), number in sorted(busy.items()):
        what = f"put off {counted(number, 'request')} for data: too many at once"
        yield Finding(KIND, what, (cluster, source, destination), number=number, is_note=True)


KIND = Kind(
    name="busy workers",
    meaning="Workers put off requests for data because too many are open.",
    threshold="always a note",
    advice="Raise distributed.worker.connections.incoming, or move less data.",
    detect=detect,
)
