"""Packets that overtake each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import hull, intervals, seconds
from daskwire.analysis.problems.finding import Finding, Kind, percent

OVERTAKEN_NUMBER, OVERTAKEN_SHARE = 10, 0.005


def detect(evidence: Evidence) -> Iterator[Finding]:
    late = evidence.late
    for pair, group in evidence.by_pair(np.unique(late.flow[late.reordered]).tolist()).items():
        own = late.reordered & np.isin(late.flow, group)
        number, total = int(own.sum()), evidence.data_segments(pair)
        if number < max(OVERTAKEN_NUMBER, OVERTAKEN_SHARE * total):
            continue
        waits = intervals(late.hole_ns[own], late.time_ns[own])
        median_ms = float(np.median(late.time_ns[own] - late.hole_ns[own])) / 1e6
        what = (
            f"{number} of {total:,} data segments ({percent(number / total)}) were overtaken by later ones,"
            f" by {median_ms:.2f} ms (median)"
        )
        is_note = not evidence.while_running(pair[0], hull(waits))
        yield Finding(KIND, what, pair, hull(waits), seconds(waits), 0.9, number, tuple(group), is_note)


KIND = Kind(
    name="reordering",
    meaning="Packets overtake each other in one direction, so TCP retransmits without need.",
    threshold="at least 10 segments, and 0.5 % of the data segments from one host to another",
    advice="Look for parallel paths without flow hashing, such as bonding in mode balance-rr.",
    filter="tcp.analysis.out_of_order || tcp.analysis.retransmission",
    effects=frozenset({"loss"}),
    is_on_path=True,
    detect=detect,
)
