"""Packets that a router or host reports as lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from daskwire.analysis.problems.evidence.connects import FailedConnects
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import COSTLY_S, DELAYS, Finding, Kind, counted, is_cheap
from daskwire.decoder.dask.nodes.identities import Endpoint
from daskwire.decoder.net.packets.notices import TOO_BIG, IcmpError

TCP = 6
Report = tuple[str, Endpoint, str, int]  # error, destination, reporter, MTU


def detect(evidence: Evidence) -> Iterator[Finding]:
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
            yield _finding(evidence, report, errors, flows)


def _finding(evidence: Evidence, report: Report, errors: list[IcmpError], flows: list[int]) -> Finding:
    kind, (address, port), reporter, mtu = report
    pairs = sorted({evidence.pairs[flow] for flow in flows})
    pair = pairs[0] if len(pairs) == 1 else (pairs[0][0], pairs[0][2], "")  # several senders: the target
    when = min(error.time_ns for error in errors), max(error.time_ns for error in errors)
    by = "its host" if reporter == address else reporter
    if kind == TOO_BIG:
        limit = f": only {mtu:,} bytes pass" if mtu else ""
        what = f"packets to {address} are too big for {by}{limit}"
        is_ignored = bool(set(flows) & set(evidence.losses.black_holes))
        return Finding(KIND, what, pair, when, 0.0, 0.95, len(errors), tuple(flows), not is_ignored)
    failed = _failed_connects(evidence, (address, port), set(flows))
    attempts = f", which answered {counted(sum(group.attempts for group in failed), 'SYN')}" if failed else ""
    what = f"packets to {address} port {port} do not arrive: {kind}, reports {by}{attempts}"
    span_s = (when[1] - when[0]) / 1e9
    waited_s = sum(group.cost_s for group in failed)
    is_note = is_cheap(max(waited_s, span_s)) or (bool(failed) and all(group.is_exempt for group in failed))
    cost_s = 0.0 if failed else span_s  # failed connects are its consequences, with costs of their own
    return Finding(KIND, what, pair, when, cost_s, 0.95, len(errors), tuple(flows), is_note)


def _failed_connects(evidence: Evidence, target: Endpoint, flows: set[int]) -> list[FailedConnects]:
    return [
        group
        for group in evidence.failed_connects
        if (group.target.address, group.target.port) == target and flows & set(group.flows)
    ]


KIND = Kind(
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
    detect=detect,
)
