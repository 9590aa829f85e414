"""Connections that a peer, or a proxy before it, accepts but never answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from daskwire.analysis.problems.evidence.connects import Target
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import SECOND_NS, Interval, hull, seconds
from daskwire.analysis.problems.finding import DELAYS, Finding, Kind, counted
from daskwire.analysis.tables.completeness import ENCRYPTED
from daskwire.decoder.net.segments import FIN, RST

PATIENCE_NS = 3 * SECOND_NS
PROTOCOLS = {"tls": "TLS", "ws": "WebSocket"}


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield the targets at which handshakes of Dask, TLS or WebSocket stayed without an answer."""
    groups: defaultdict[tuple[str, Target], list[tuple[Interval, int]]] = defaultdict(list)
    for flow in evidence.capture.pieces.flow.tolist():
        name = _handshake(evidence, flow)
        if name and (wait := _wait(evidence, flow)):
            _, _, address, port = evidence.capture.connections.endpoints(flow)
            groups[name, Target(evidence.pairs[flow], address, port)].append((wait, flow))
    for (name, target), group in groups.items():
        waits, flows = [wait for wait, _ in group], tuple(flow for _, flow in group)
        longest_s = max(stop - start for start, stop in waits) / 1e9
        what = (
            f"{target.address} port {target.port} accepted {counted(len(group), 'connection')} and answered"
            f" nothing to {name}'s handshake, for up to {longest_s:.1f} s"
        )
        yield Finding(KIND, what, target.pair, hull(waits), seconds(waits), 0.95, len(group), flows)


def _handshake(evidence: Evidence, flow: int) -> str:
    """Return the protocol of a connection on which only one side ever sent data, else nothing."""
    capture, connection = evidence.capture, flow >> 1
    is_one_sided = capture.lives.opened[connection] and capture.extents.end[flow ^ 1] == 0
    if not is_one_sided or not len(capture.lanes.rows(flow ^ 1)):
        return ""
    if connection in capture.conversations:
        return "Dask"
    protocol = capture.other_protocols.get(connection, "")
    return PROTOCOLS.get(protocol, "") if protocol in ENCRYPTED else ""


def _wait(evidence: Evidence, flow: int) -> Interval | None:
    """Return how long the first data of a flow waited for an answer until the connection ended."""
    segments = evidence.capture.segments
    start_ns = int(segments.time_ns[evidence.data_rows([flow])[0]])
    rows = [row for side in (flow, flow ^ 1) for row in evidence.rows(side).tolist()]
    ends = [int(segments.time_ns[row]) for row in rows if segments.flags[row] & (FIN | RST)]
    is_taken = evidence.acknowledged(flow) > 0  # else the network did not deliver it
    stop_ns = min(ends, default=evidence.end_ns)
    return (start_ns, stop_ns) if is_taken and stop_ns - start_ns >= PATIENCE_NS else None


KIND = Kind(
    name="unanswered handshake",
    meaning="A connection is accepted, but nobody answers on it.",
    threshold="the peer acknowledged a handshake of Dask, TLS or WebSocket and sent nothing for 3 s or more",
    advice=(
        "Look for a proxy, load balancer or port-forward that accepts connections before its backend does,"
        " and for a process whose event loop is blocked."
    ),
    filter="tcp.len > 0 || tcp.flags.fin == 1 || tcp.flags.reset == 1",
    effects=DELAYS,
    detect=detect,
)
