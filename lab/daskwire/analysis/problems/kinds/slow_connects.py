"""Connects that take long, in TCP or in Dask's handshake."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.connects import SLOW_MS, Failure
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import hull
from daskwire.analysis.problems.evidence.traffic import Pair
from daskwire.analysis.problems.finding import Finding, Kind, connect_findings
from daskwire.decoder.dask.framing.content import MessageKind


def detect(evidence: Evidence) -> Iterator[Finding]:
    yield from connect_findings(KIND, evidence.connects_that(Failure.SLOW), evidence)
    yield from _slow_handshakes(evidence)


def _slow_handshakes(evidence: Evidence) -> Iterator[Finding]:
    """Yield pairs in which one side sent its half of Dask's handshake late: its event loop was busy."""
    messages = evidence.capture.messages
    first: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for index in np.flatnonzero(messages.kind == MessageKind.HANDSHAKE).tolist():
        flow = int(messages.flow[index])
        first[flow // 2].setdefault(flow, int(messages.time_ns[index]))
    groups: defaultdict[Pair, list[tuple[int, int, int]]] = defaultdict(list)
    for times in first.values():
        begin, end = min(times.values()), max(times.values())
        if len(times) == 2 and (end - begin) / 1e6 > SLOW_MS:
            late = max(times, key=lambda flow: times[flow])
            groups[evidence.pairs[late]].append((begin, end, late))
    for pair, group in sorted(groups.items()):
        waits = [(begin, end) for begin, end, _ in group]
        longest_s = max(end - begin for begin, end in waits) / 1e9
        what = f"its half of Dask's handshake came up to {longest_s:.1f} s after the peer's"
        cost_s = sum(end - begin for begin, end in waits) / 1e9
        flows = tuple(flow for _, _, flow in group)
        is_note = not evidence.during_work(pair[0], hull(waits))
        yield Finding(KIND, what, pair, hull(waits), cost_s, 0.8, len(group), flows, is_note)


KIND = Kind(
    name="slow connects",
    meaning="Connecting takes long, in TCP or in Dask's handshake.",
    threshold="more than 1 s until the ACK of the SYN-ACK, or until the second half of Dask's handshake",
    advice="A late handshake is a busy event loop; a late SYN-ACK is the network.",
    filter="tcp.flags.syn == 1",
    detect=detect,
)
