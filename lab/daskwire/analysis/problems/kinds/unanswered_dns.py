"""Names that Dask's hosts look up without an answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.intervals import Interval, hull, merged
from daskwire.analysis.problems.finding import COSTLY_S, Finding, Kind, counted, is_cheap
from daskwire.decoder.net.packets.control import DNS_PORT
from daskwire.decoder.net.packets.notices import PORT_UNREACHABLE, DnsPacket

OF_DASK = ("dask", "scheduler")  # parts of names that are looked up by Dask
RESULTS = {2: "server failure", 3: "no such name", 5: "refused"}
COPIES_NS = 100_000_000  # the same query within this time is a copy of the packet
Label = tuple[str, str, str]  # client's address, name server, first label of the name


def detect(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding per client, name server and result."""
    lookups: defaultdict[Label, list[DnsPacket]] = defaultdict(list)
    for packet in evidence.capture.notices.dns:
        lookups[packet.client[0], packet.server, packet.name.split(".")[0]].append(packet)
    hosts = {
        address
        for conversation in evidence.capture.conversations
        for address in _ends(evidence, conversation)
    }
    groups: defaultdict[tuple[str, str, str], list[tuple[Interval, str, int]]] = defaultdict(list)
    for (client, server, label), packets in sorted(lookups.items()):
        failure = _failure(evidence, packets)
        is_of_dask = client in hosts or any(word in label for word in OF_DASK)
        if failure and is_of_dask and not is_cheap((failure[1][1] - failure[1][0]) / 1e9):
            result, wait, name, number = failure
            groups[client, server, result].append((wait, name, number))
    for (client, server, result), failures in groups.items():
        waits = merged(wait for wait, _, _ in failures)
        cost_s = sum(stop - start for start, stop in waits) / 1e9
        number = sum(number for _, _, number in failures)
        names = ", ".join(sorted({name for _, name, _ in failures}))
        what = f"asked {server} for {names} {counted(number, 'time')} within {cost_s:.1f} s: {result}"
        pair = "", evidence.capture.nodes.name(client, 0), ""
        yield Finding(KIND, what, pair, hull(waits), cost_s, 0.9, number)


def _ends(evidence: Evidence, connection: int) -> tuple[str, str]:
    source, _, destination, _ = evidence.capture.connections.endpoints(2 * connection)
    return source, destination


def _failure(evidence: Evidence, packets: list[DnsPacket]) -> tuple[str, Interval, str, int] | None:
    """Return result, time, name and number of the queries for a name until the first success.

    A resolver tries a name with several suffixes, so one success is enough. Copies of a query count once.
    """
    stop_ns = min((packet.time_ns for packet in packets if packet.code == 0 and packet.records), default=None)
    before = [packet for packet in packets if stop_ns is None or packet.time_ns < stop_ns]
    queries = [packet for packet in before if packet.code is None]
    if not queries:
        return None
    wait = queries[0].time_ns, stop_ns or max(packet.time_ns for packet in packets)
    number = len({(query.client, query.number, query.name, query.time_ns // COPIES_NS) for query in queries})
    name = min((query.name for query in queries), key=len)
    answered = {_key(packet) for packet in packets if packet.code is not None}
    codes = [packet.code for packet in before if packet.code]
    if any(_key(query) not in answered for query in queries):
        result = _silence(evidence, queries[0].server)
    elif codes:
        result = RESULTS.get(codes[-1], f"result {codes[-1]}")
    else:
        return None  # the name exists, without an address of this kind
    return result, wait, name, number


def _key(packet: DnsPacket) -> tuple[tuple[str, int], int, str]:
    return packet.client, packet.number, packet.name


def _silence(evidence: Evidence, server: str) -> str:
    """Say why a name server does not answer."""
    errors = [error for error in evidence.capture.notices.icmp if error.error == PORT_UNREACHABLE]
    is_closed = any(error.destination == (server, DNS_PORT) for error in errors)
    return "its port is closed (ICMP)" if is_closed else "no answer"


KIND = Kind(
    name="unanswered DNS",
    meaning="A name of the cluster cannot be looked up.",
    threshold=(
        "queries of a host with Dask, or for a name with dask or scheduler in it, had no answer or no success"
        f" for {COSTLY_S} s"
    ),
    advice="Check the name, the service that it stands for, and the host's name server (/etc/resolv.conf).",
    filter="dns || icmp",
    effects=frozenset({"standstill"}),
    detect=detect,
)
