"""Connections that could not be made, or only late."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from daskwire.analysis.problems.evidence.connects import SLOW_MS, FailedConnects, Failure, Target
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.retransmissions import SECOND_NS, Interval, hull, seconds
from daskwire.analysis.problems.evidence.traffic import Pair
from daskwire.analysis.problems.finding import (
    COSTLY_S,
    DELAYS,
    Finding,
    Kind,
    connect_findings,
    counted,
    is_cheap,
)
from daskwire.analysis.tables.completeness import ENCRYPTED
from daskwire.analysis.tables.participants import JOINED, NO_ANSWER, departure, joined, participants
from daskwire.decoder.dask.content import MessageKind
from daskwire.decoder.dask.nodes import Endpoint
from daskwire.decoder.net.packets.notices import TOO_BIG, IcmpError
from daskwire.decoder.net.segments import FIN, RST

# Connects to a port on which nobody listens.


def find_refused_connects(evidence: Evidence) -> Iterator[Finding]:
    yield from connect_findings(REFUSED_CONNECTS, evidence.connects_that(Failure.REFUSED), evidence)


REFUSED_CONNECTS = Kind(
    name="refused connects",
    meaning="Nobody listens where a process connects to.",
    threshold=(
        f"connections were refused between start-up and shutdown for {COSTLY_S} s, or at a Dask port always"
    ),
    advice="Check whether the process on that port has ended, and why.",
    filter="tcp.flags.reset == 1",
    effects=frozenset({"standstill"}),
    detect=find_refused_connects,
)


# Connects that nothing answers, or only later.


def find_unanswered_connects(evidence: Evidence) -> Iterator[Finding]:
    yield from connect_findings(UNANSWERED_CONNECTS, evidence.connects_that(Failure.UNANSWERED), evidence)


UNANSWERED_CONNECTS = Kind(
    name="unanswered connects",
    meaning="Nothing answers attempts to connect.",
    threshold=(
        f"SYNs had no answer, or only a later one had, between start-up and shutdown for {COSTLY_S} s, or"
        " always at a port of Dask"
    ),
    advice="Check whether the host is up, firewalls on the path, and whether the listener's backlog is full.",
    filter="tcp.flags.syn == 1 && tcp.flags.ack == 0",
    effects=DELAYS,
    detect=find_unanswered_connects,
)


# Connects that take long, in TCP or in Dask's handshake.


def find_slow_connects(evidence: Evidence) -> Iterator[Finding]:
    yield from connect_findings(SLOW_CONNECTS, evidence.connects_that(Failure.SLOW), evidence)
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
        yield Finding(SLOW_CONNECTS, what, pair, hull(waits), cost_s, 0.8, len(group), flows, is_note)


SLOW_CONNECTS = Kind(
    name="slow connects",
    meaning="Connecting takes long, in TCP or in Dask's handshake.",
    threshold="more than 1 s until the ACK of the SYN-ACK, or until the second half of Dask's handshake",
    advice="A late handshake is a busy event loop; a late SYN-ACK is the network.",
    filter="tcp.flags.syn == 1",
    detect=find_slow_connects,
)


# Connections that a peer, or a proxy before it, accepts but never answers.

HANDSHAKE_NS = 3 * SECOND_NS
PROTOCOLS = {"tls": "TLS", "ws": "WebSocket"}


def find_unanswered_handshake(evidence: Evidence) -> Iterator[Finding]:
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
        yield Finding(
            UNANSWERED_HANDSHAKE, what, target.pair, hull(waits), seconds(waits), 0.95, len(group), flows
        )


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
    return (start_ns, stop_ns) if is_taken and stop_ns - start_ns >= HANDSHAKE_NS else None


UNANSWERED_HANDSHAKE = Kind(
    name="unanswered handshake",
    meaning="A connection is accepted, but nobody answers on it.",
    threshold="the peer acknowledged a handshake of Dask, TLS or WebSocket and sent nothing for 3 s or more",
    advice=(
        "Look for a proxy, load balancer or port-forward that accepts connections before its backend does,"
        " and for a process whose event loop is blocked."
    ),
    filter="tcp.len > 0 || tcp.flags.fin == 1 || tcp.flags.reset == 1",
    effects=DELAYS,
    detect=find_unanswered_handshake,
)


# Packets that a router or host reports as lost.

TCP = 6
Report = tuple[str, Endpoint, str, int]  # error, destination, reporter, MTU


def find_icmp_errors(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding per error, target and reporter. A limit of the packet size is a note."""
    reports: defaultdict[Report, list[IcmpError]] = defaultdict(list)
    for error in evidence.capture.notices.icmp:
        if error.protocol == TCP:
            reports[error.error, error.destination, error.reporter, error.mtu].append(error)
    flows_between: defaultdict[tuple[str, Endpoint], list[int]] = defaultdict(list)
    for flow in evidence.flows:
        source, _, address, port = evidence.capture.connections.endpoints(flow)
        flows_between[source, (address, port)].append(flow)
    for report, errors in sorted(reports.items()):
        sources = sorted({error.source[0] for error in errors})
        flows = [flow for source in sources for flow in flows_between[source, report[1]]]
        if flows:
            yield _icmp_finding(evidence, report, errors, flows)


def _icmp_finding(evidence: Evidence, report: Report, errors: list[IcmpError], flows: list[int]) -> Finding:
    kind, (address, port), reporter, mtu = report
    pairs = sorted({evidence.pairs[flow] for flow in flows})
    pair = pairs[0] if len(pairs) == 1 else (pairs[0][0], pairs[0][2], "")  # several senders: the target
    when = min(error.time_ns for error in errors), max(error.time_ns for error in errors)
    by = "its host" if reporter == address else reporter
    if kind == TOO_BIG:
        limit = f": only {mtu:,} bytes pass" if mtu else ""
        what = f"packets to {address} are too big for {by}{limit}"
        is_ignored = bool(set(flows) & set(evidence.losses.black_holes))
        return Finding(ICMP_ERRORS, what, pair, when, 0.0, 0.95, len(errors), tuple(flows), not is_ignored)
    failed = _failed_connects(evidence, (address, port), set(flows))
    attempts = f", which answered {counted(sum(group.attempts for group in failed), 'SYN')}" if failed else ""
    what = f"packets to {address} port {port} do not arrive: {kind}, reports {by}{attempts}"
    span_s = (when[1] - when[0]) / 1e9
    waited_s = sum(group.cost_s for group in failed)
    is_note = is_cheap(max(waited_s, span_s)) or (bool(failed) and all(group.is_exempt for group in failed))
    cost_s = 0.0 if failed else span_s  # failed connects are its consequences, with costs of their own
    return Finding(ICMP_ERRORS, what, pair, when, cost_s, 0.95, len(errors), tuple(flows), is_note)


def _failed_connects(evidence: Evidence, target: Endpoint, flows: set[int]) -> list[FailedConnects]:
    return [
        group
        for group in evidence.failed_connects
        if (group.target.address, group.target.port) == target and flows & set(group.flows)
    ]


ICMP_ERRORS = Kind(
    name="ICMP errors",
    meaning="A router or host reports that packets do not arrive.",
    threshold=(
        f"ICMP says of a TCP connection for {COSTLY_S} s: unreachable, prohibited, a routing loop; or"
        " it says: too big, and the sender does not send smaller packets (otherwise a note)"
    ),
    advice=(
        "Prohibited or port unreachable: a firewall's reject rule on the host that reports it. Host or"
        " network unreachable: the host is down, or a route is missing. Too big: set the MTU, or let ICMP"
        " through."
    ),
    filter="icmp || icmpv6",
    effects=frozenset({"unanswered connects", "refused connects", "MTU black hole"}) | DELAYS,
    is_on_path=True,
    detect=find_icmp_errors,
)


# Workers that did not join their cluster.

REGISTRATION_NS = 3 * SECOND_NS


def find_unregistered_worker(evidence: Evidence) -> Iterator[Finding]:
    """Yield processes whose registration the scheduler refused or did not answer."""
    capture = evidence.capture
    for participant in participants(capture):
        answer = joined(capture, participant)
        if answer in ("", JOINED):
            continue
        flow = participant.flow
        start_ns = int(capture.messages.time_ns[participant.registration])
        end = departure(capture, flow)
        when = start_ns, end.time_ns if end else evidence.end_ns
        if answer == NO_ANSWER and when[1] - start_ns < REGISTRATION_NS:
            continue
        cost_s = (when[1] - start_ns) / 1e9
        detail = f"had no answer for {cost_s:.1f} s" if answer == NO_ANSWER else f"was {answer}"
        what = f"the registration of this {participant.role} {detail}"
        yield Finding(UNREGISTERED_WORKER, what, evidence.pairs[flow], when, cost_s, 0.95, flows=(flow,))


UNREGISTERED_WORKER = Kind(
    name="unregistered worker",
    meaning="A worker or client did not join its cluster.",
    threshold="the scheduler refused its registration, or did not answer it for 3 s or more",
    advice="Look in its log and in the scheduler's: names that are taken, versions that differ, a busy loop.",
    filter="tcp.len > 0",
    detect=find_unregistered_worker,
)
