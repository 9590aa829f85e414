"""Encrypted connections."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import Finding, Kind, counted
from daskwire.analysis.tables.completeness import ENCRYPTED


def detect(evidence: Evidence) -> Iterator[Finding]:
    capture = evidence.capture
    hidden = [c for c, protocol in capture.other_protocols.items() if protocol in ENCRYPTED]
    if not hidden:
        return
    flow_bytes = np.bincount(
        capture.segments.flow, capture.segments.length, minlength=2 * len(capture.connections)
    )
    size = int(sum(flow_bytes[2 * c] + flow_bytes[2 * c + 1] for c in hidden))
    decoded = int(capture.messages.size.sum())
    protocols = " and ".join(sorted({capture.other_protocols[c] for c in hidden}))
    number = counted(len(hidden), f"{protocols} connection")
    what = f"{number} with {size:,} bytes could not be decoded"
    flows = tuple(2 * c for c in hidden)
    yield Finding(KIND, what, number=len(hidden), flows=flows, is_note=size < decoded)


KIND = Kind(
    name="TLS without keys",
    meaning="Connections are encrypted: only sizes, times and TCP's own figures are known.",
    threshold="at least as many bytes are encrypted as are decoded",
    advice="Start the processes with SSLKEYLOGFILE and give the file with --key-log.",
    filter="tls",
    is_first=True,
    is_about_capture=True,
    detect=detect,
)
