"""Processes that do not read what they receive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import (
    SECOND_NS,
    Interval,
    hull,
    merged,
    seconds,
    seconds_by_flow,
)
from daskwire.analysis.problems.evidence.traffic import Node
from daskwire.analysis.problems.finding import DELAYS, Finding, Kind, counted
from daskwire.decoder.net.segments import FIN, RST, SYN

PAUSE_S = 1.0  # a worker that splits data frames for a shuffle does not read for nearly as long
MAX_WORK_SHARE = 0.5  # the longer a shuffle takes, the longer its short pauses are in all


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield receivers that stopped their peers."""
    segments = evidence.capture.segments
    closed = (segments.window == 0) & (segments.flags & (RST | SYN | FIN) == 0) & ~evidence.capture.copied
    groups: defaultdict[Node, list[tuple[int, Interval]]] = defaultdict(list)
    for flow in np.unique(segments.flow[closed]).tolist():
        cluster, node, _ = evidence.pairs[flow]
        groups[cluster, node] += [
            (flow, w) for w in _closed(evidence, flow) if evidence.during_work(cluster, w)
        ]
    for (cluster, node), episodes in sorted(groups.items()):
        if not episodes:
            continue
        flows, waits = zip(*episodes, strict=True)
        peers = sorted({evidence.pairs[flow][2] for flow in flows})
        cost_s = seconds_by_flow(flows, waits)
        longest_s = max(map(_duration_s, merged(waits)))
        what = (
            f"its process did not read: {counted(len(waits), 'time')} a window of 0, {cost_s:.2f} s in all"
            f" (longest {longest_s:.2f} s); waiting: {', '.join(peers)}"
        )
        pair = cluster, node, peers[0] if len(peers) == 1 else ""
        work_s = _duration_s(evidence.work.get(cluster, evidence.span(flows)))
        is_note = longest_s < PAUSE_S and seconds(waits) < max(PAUSE_S, MAX_WORK_SHARE * work_s)
        when, own = hull(waits), tuple(sorted(set(flows)))
        yield Finding(KIND, what, pair, when, cost_s, 0.95, len(waits), own, is_note)


def _duration_s(interval: Interval) -> float:
    return (interval[1] - interval[0]) / SECOND_NS


def _closed(evidence: Evidence, flow: int) -> list[Interval]:
    """Return when the sender of a flow had a window of 0 while its peer had more to send."""
    segments, rows = evidence.capture.segments, evidence.rows(flow)
    rows = rows[segments.flags[rows] & (RST | SYN | FIN) == 0]
    zero = segments.window[rows] == 0
    sent_ns = segments.time_ns[evidence.data_rows([flow ^ 1])]
    last_ns = max(evidence.last_ns(f) for f in (flow, flow ^ 1) if f in evidence.flows)
    result = []
    for begin in np.flatnonzero(zero & ~np.append(False, zero[:-1])).tolist():
        opened = np.flatnonzero(~zero[begin:])
        begin_ns = int(segments.time_ns[rows[begin]])
        end_ns = int(segments.time_ns[rows[begin + opened[0]]]) if len(opened) else last_ns
        following = int(np.searchsorted(sent_ns, end_ns))
        goes_on = following < len(sent_ns) and sent_ns[following] - end_ns < SECOND_NS
        if end_ns > begin_ns and (goes_on or not len(opened)):
            result.append((begin_ns, end_ns))
    return result


KIND = Kind(
    name="zero window",
    meaning="A process does not read what it receives, so its peers must wait.",
    threshold=(
        f"a receive window of 0 stopped peers that had more to send, for {PAUSE_S:.0f} s at a time, or for"
        f" {PAUSE_S:.0f} s and {100 * MAX_WORK_SHARE:.0f} % of the cluster's work in all"
    ),
    advice="Look at the receiving process: its event loop is blocked, or it is stopped or short of CPU.",
    filter="tcp.window_size_value == 0 || tcp.analysis.window_update",
    effects=DELAYS,
    detect=detect,
)
