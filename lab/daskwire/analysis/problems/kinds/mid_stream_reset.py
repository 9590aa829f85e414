"""Connections that were reset while they were in use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.connects import Failure
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import SECOND_NS
from daskwire.analysis.problems.evidence.traffic import Pair
from daskwire.analysis.problems.finding import DELAYS, Finding, Kind, connect_findings, counted
from daskwire.analysis.tables.participants import broken_streams
from daskwire.base.arrays import NONE
from daskwire.decoder.dask.framing.content import MessageKind
from daskwire.decoder.net.segments import FIN, RST

RECONNECT_NS = 30 * SECOND_NS
OPS_WITH_REPLY = frozenset({"get_data", "gather", "heartbeat_worker", "identity", "who_has"})


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield pairs whose connections were reset: problems if they were needed, else notes."""
    capture = evidence.capture
    segments = capture.segments
    rows = np.flatnonzero((segments.flags & (RST | FIN) != 0) & ~capture.copied)
    _, first = np.unique(segments.flow[rows] >> 1, return_index=True)
    first = first[segments.flags[rows[first]] & FIN == 0]  # after a FIN, an RST only ends the closing
    openings, streams = _openings(evidence), {worker.flow >> 1 for worker, _ in broken_streams(capture)}
    groups: defaultdict[tuple[bool, Pair], list[tuple[int, int, float]]] = defaultdict(list)
    for row in rows[first].tolist():
        flow, time_ns = int(segments.flow[row]), int(segments.time_ns[row])
        if flow // 2 not in capture.conversations:
            continue
        pair = evidence.pairs[flow]
        waited_s = max(
            _outstanding_s(evidence, flow // 2, time_ns),
            evidence.unreported_s(pair, time_ns),
            _unacknowledged_s(evidence, flow // 2, time_ns),
        )
        again = [t for t in openings[frozenset(pair[1:])] if time_ns < t < time_ns + RECONNECT_NS]
        until_s = (min(again) - time_ns) / 1e9 if again else 0.0
        is_work = evidence.during_work(pair[0], (time_ns, time_ns))
        is_work = is_work and not evidence.is_shut_down(pair[0], time_ns)
        was_needed = is_work and bool(waited_s or again or flow >> 1 in streams)
        groups[was_needed, pair].append((time_ns, flow, waited_s + until_s))
    for (was_needed, pair), resets in sorted(groups.items()):
        reason = ", while it was needed" if was_needed else ""
        what = f"reset {counted(len(resets), 'connection')} that carried Dask{reason}"
        times, flows = [time_ns for time_ns, _, _ in resets], tuple(flow for _, flow, _ in resets)
        cost_s = sum(cost for _, _, cost in resets)
        when = min(times), max(times)
        yield Finding(KIND, what, pair, when, cost_s, 0.9, len(resets), flows, not was_needed)
    aborted = evidence.connects_that(Failure.ABORTED)
    own = [group for group in aborted if evidence.is_dask_port(group.target.address, group.target.port)]
    yield from connect_findings(KIND, own, evidence)


def _unacknowledged_s(evidence: Evidence, connection: int, time_ns: int) -> float:
    """Return how long data of a reset connection had been sent again: its receiver took none."""
    events = evidence.retransmissions
    own = (events.flow >> 1 == connection) & (events.previous_ns <= time_ns) & (events.time_ns >= time_ns)
    return float((events.time_ns[own].max(initial=time_ns) - time_ns) / 1e9)


def _openings(evidence: Evidence) -> defaultdict[frozenset[str], list[int]]:
    """Return when connections between two nodes were opened."""
    result: defaultdict[frozenset[str], list[int]] = defaultdict(list)
    for flow in evidence.flows:
        if flow % 2 == 0 and evidence.capture.lives.opened[flow // 2]:
            result[frozenset(evidence.pairs[flow][1:])].append(evidence.first_ns(flow))
    return result


def _outstanding_s(evidence: Evidence, connection: int, time_ns: int) -> float:
    """Return how long the oldest incomplete message or unanswered request had waited at a reset."""
    messages = evidence.capture.messages
    own = np.flatnonzero(messages.flow >> 1 == connection)
    waiting = own[messages.seen[own] < messages.size[own]].tolist()
    requests = own[(messages.kind[own] == MessageKind.REQUEST) & (messages.answer[own] == NONE)]
    for message in requests.tolist():
        index = int(np.searchsorted(messages.op_message, message))
        if messages.op_name[index] in OPS_WITH_REPLY:
            waiting.append(message)
    begin = min((int(messages.time_ns[message]) for message in waiting), default=time_ns)
    return (time_ns - begin) / 1e9


KIND = Kind(
    name="mid-stream reset",
    meaning="A connection was reset while it was in use.",
    threshold=(
        "an RST without a FIN before it, during the work of the cluster, with a message, a reply or a task's"
        " report outstanding, followed by a new connection between the same hosts, or of the connection over"
        " which a worker gets its tasks; or in place of the ACK of a SYN-ACK"
    ),
    advice="Look in the log of the process that sent the RST, and for firewalls that reject connections.",
    filter="tcp.flags.reset == 1",
    effects=frozenset({"refused connects", "retransmission time-outs", "half-open connection"}) | DELAYS,
    is_sudden=True,
    is_on_path=True,
    detect=detect,
)
