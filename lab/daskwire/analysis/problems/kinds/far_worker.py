"""Workers that are much farther from the scheduler than the others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.traffic import Node
from daskwire.analysis.problems.finding import COSTLY_S, DELAYS, Finding, Kind, is_cheap
from daskwire.analysis.tables.participants import WORKER, participants
from daskwire.analysis.tables.reach import round_trip_ms
from daskwire.base.arrays import NONE
from daskwire.decoder.dask.framing.content import MessageKind

FAR_MS, FAR_RATIO = 5.0, 5.0  # an RTT that is both longer by FAR_MS and FAR_RATIO times the others'


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield workers whose RTT with the scheduler is much longer than that of most others."""
    trips = _trips_ms(evidence)
    for (cluster, worker), rtt_ms in trips.items():
        others = [ms for (own, name), ms in trips.items() if own == cluster and name != worker]
        usual_ms = float(np.median(others)) if others else rtt_ms
        if rtt_ms < max(usual_ms + FAR_MS, FAR_RATIO * usual_ms):
            continue
        flows = tuple(flow for flow in evidence.flows if worker in evidence.pairs[flow][1:])
        number = _waiting_messages(evidence, flows)
        cost_s = number * (rtt_ms - usual_ms) / 2 / 1e3  # each message is on its way for half a round trip
        what = (
            f"its RTT with the scheduler is at least {rtt_ms:.1f} ms, that of other workers {usual_ms:.2f} ms"
            f" (median); {number:,} messages took that much longer"
        )
        when = evidence.span(flows)
        yield Finding(KIND, what, (cluster, worker, ""), when, cost_s, 0.9, number, flows, is_cheap(cost_s))


def _trips_ms(evidence: Evidence) -> dict[Node, float]:
    """Return the RTT between the scheduler and each of its workers."""
    result: dict[Node, float] = {}
    workers = {
        evidence.pairs[member.flow] for member in participants(evidence.capture) if member.role == WORKER
    }
    for pair in sorted(workers):
        rtt_ms = round_trip_ms(evidence.capture, evidence.flows_of.get(pair, []))
        if rtt_ms is not None:
            result[pair[:2]] = rtt_ms
    return result


def _waiting_messages(evidence: Evidence, flows: tuple[int, ...]) -> int:
    """Count the messages of some flows for which somebody waits: neither heartbeats nor handshakes."""
    messages = evidence.capture.messages
    beats = messages.op_message[messages.ops_named({"heartbeat_worker"})]
    idle = messages.kind == MessageKind.HANDSHAKE
    idle[beats] = True
    answers = messages.answer[beats]
    idle[answers[answers != NONE]] = True
    return int((np.isin(messages.flow, flows) & ~idle).sum())


KIND = Kind(
    name="far worker",
    meaning="A worker is much farther from the scheduler than the others.",
    threshold=(
        f"its smallest RTT is {FAR_MS:.0f} ms longer than the median of the other workers and"
        f" {FAR_RATIO:.0f} times theirs, and messages to and from it took {COSTLY_S} s longer in all"
    ),
    advice="Start workers near their scheduler, or look for a detour of their packets (traceroute, a VPN).",
    effects=frozenset({"slow link"}) | DELAYS,
    detect=detect,
)
