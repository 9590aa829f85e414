"""Addresses that lead nowhere, or somewhere else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import pairwise

import numpy as np

from daskwire.analysis.problems.evidence.connects import FailedConnects, Failure
from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.evidence.retransmissions import Interval, hull, merged
from daskwire.analysis.problems.finding import (
    COSTLY_S,
    DELAYS,
    FAILURES,
    LOSSES,
    Finding,
    Kind,
    counted,
    is_cheap,
)
from daskwire.analysis.tables.participants import WORKER, Participant, participants
from daskwire.decoder.dask.nodes import Endpoint, cluster_name
from daskwire.decoder.net.packets.control import DNS_PORT
from daskwire.decoder.net.packets.notices import PORT_UNREACHABLE, DnsPacket, format_mac

# Two hosts with the same IP address.

MIN_CHANGES = 2  # after a single change of its MAC address, an IP address may have moved
Sighting = tuple[int, int]  # time in ns, MAC address


def find_duplicate_ip(evidence: Evidence) -> Iterator[Finding]:
    """Yield addresses with several MAC addresses that no other address uses (those would be a router's)."""
    sightings, announced = _sightings(evidence)
    users: defaultdict[int, set[str]] = defaultdict(set)
    for address, own in sightings.items():
        for _, mac in own:
            users[mac].add(address)
    for address, own in sorted(sightings.items()):
        own = sorted((time_ns, mac) for time_ns, mac in own if users[mac] == {address})
        macs = list(dict.fromkeys(mac for _, mac in own))
        changes = [time_ns for (_, before), (time_ns, after) in pairwise(own) if before != after]
        if not changes:
            continue
        both_announce = len(announced[address] & set(macs)) > 1
        flows = tuple(f for f in evidence.flows if address in evidence.capture.connections.endpoints(f))
        cluster = next((evidence.pairs[flow][0] for flow in flows), "")
        node = evidence.capture.nodes.name(address, 0)
        what = (
            f"{address} is used by {' and '.join(map(format_mac, macs))}; they alternate"
            f" {counted(len(changes), 'time')}{', and both announce it' if both_announce else ''}"
        )
        yield Finding(
            DUPLICATE_IP, what, (cluster, node, ""), (changes[0], changes[-1]), 0.0,
            0.95 if both_announce else 0.8, len(changes), flows,
            len(changes) < MIN_CHANGES and not both_announce,
        )  # fmt: skip


def _sightings(evidence: Evidence) -> tuple[dict[str, list[Sighting]], dict[str, set[int]]]:
    """Return when each address was seen with which MAC address, and which ones announced it by ARP."""
    connections, macs = evidence.capture.connections, evidence.capture.macs
    result: defaultdict[str, list[Sighting]] = defaultdict(list)
    announced: defaultdict[str, set[int]] = defaultdict(set)
    for flow in evidence.flows:
        if flow < len(macs.source) and macs.source[flow]:
            result[connections.endpoints(flow)[0]].append((evidence.first_ns(flow), int(macs.source[flow])))
    changes, arp = macs.changes, macs.announcements
    columns = (changes.flow.tolist(), changes.time_ns.tolist(), changes.source.tolist())
    for flow, time_ns, mac in zip(*columns, strict=True):
        result[connections.endpoints(flow)[0]].append((time_ns, mac))
    for time_ns, code, mac in zip(arp.time_ns.tolist(), arp.address.tolist(), arp.mac.tolist(), strict=True):
        result[connections.address(code)].append((time_ns, mac))
        announced[connections.address(code)].add(mac)
    return result, announced


DUPLICATE_IP = Kind(
    name="duplicate IP",
    meaning="Two hosts use the same IP address, so packets reach one or the other.",
    threshold=(
        "the packets of an IP address have two MAC addresses of its own in alternation, or both announce it"
        " by ARP"
    ),
    advice="Find the second host by its MAC address (ip neigh, the switch's table), and change its address.",
    filter="arp || tcp.flags.reset == 1",
    effects=FAILURES | LOSSES,
    detect=find_duplicate_ip,
)


# Names that Dask's hosts look up without an answer.

OF_DASK = ("dask", "scheduler")  # parts of names that are looked up by Dask
RESULTS = {2: "server failure", 3: "no such name", 5: "refused"}
COPIES_NS = 100_000_000  # the same query within this time is a copy of the packet
Label = tuple[str, str, str]  # client's address, name server, first label of the name


def find_unanswered_dns(evidence: Evidence) -> Iterator[Finding]:
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
        yield Finding(UNANSWERED_DNS, what, pair, hull(waits), cost_s, 0.9, number)


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


UNANSWERED_DNS = Kind(
    name="unanswered DNS",
    meaning="A name of the cluster cannot be looked up.",
    threshold=(
        "queries of a host with Dask, or for a name with dask or scheduler in it, had no answer or no success"
        f" for {COSTLY_S} s"
    ),
    advice="Check the name, the service that it stands for, and the host's name server (/etc/resolv.conf).",
    filter="dns || icmp",
    effects=frozenset({"standstill"}),
    detect=find_unanswered_dns,
)


# Workers that announce an address at which their peers cannot reach them.

SEARCH_OPS = frozenset({"request-refresh-who-has", "missing-data"})  # a worker asks where else the data is
UNREACHABLE = (Failure.REFUSED, Failure.UNANSWERED)


def find_unreachable_address(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding per cluster with such workers."""
    groups: defaultdict[str, list[Participant]] = defaultdict(list)
    failed = _failed_by_target(evidence)
    for worker in participants(evidence.capture):
        if worker.role == WORKER and _is_unreachable(evidence, worker, failed):
            groups[evidence.pairs[worker.flow][0]].append(worker)
    for cluster, workers in groups.items():
        yield _finding(evidence, cluster, workers, failed)


def _failed_by_target(evidence: Evidence) -> dict[Endpoint, list[FailedConnects]]:
    result: defaultdict[Endpoint, list[FailedConnects]] = defaultdict(list)
    for group in evidence.failed_connects:
        if group.failure in UNREACHABLE and not group.is_answered:
            result[group.target.address, group.target.port].append(group)
    return result


def _is_unreachable(
    evidence: Evidence, worker: Participant, failed: dict[Endpoint, list[FailedConnects]]
) -> bool:
    """Return whether a worker announces an address that is not its own, and none of its peers reached it."""
    capture, announced = evidence.capture, worker.announced
    source = capture.senders[worker.flow][0]
    translated = {flow >> 1 for pair in capture.translations for flow in pair}
    if announced is None or announced[0] == source or worker.flow >> 1 in translated:
        return False
    if announced in _reached(evidence):
        return False
    if _is_loopback(announced[0]):
        return not _is_loopback(source) and len(_hosts(evidence, evidence.pairs[worker.flow][0])) > 1
    return announced in failed or _searches(evidence, evidence.pairs[worker.flow][0]) > 0


def _reached(evidence: Evidence) -> set[Endpoint]:
    """Return the endpoints that sent data on some connection."""
    return {evidence.capture.senders[flow] for flow in evidence.capture.pieces.flow.tolist()}


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:  # a host name
        return address == "localhost"


def _hosts(evidence: Evidence, cluster: str) -> set[str]:
    flows = (flow for flow in evidence.flows if evidence.pairs[flow][0] == cluster)
    return {evidence.capture.senders[flow][0] for flow in flows}


def _searches(evidence: Evidence, cluster: str) -> int:
    """Count how often workers of a cluster did not find data where it should be."""
    messages = evidence.capture.messages
    flows = messages.flow[messages.op_message[messages.ops_named(SEARCH_OPS)]].tolist()
    return sum(evidence.pairs[flow][0] == cluster for flow in flows)


def _finding(
    evidence: Evidence,
    cluster: str,
    workers: list[Participant],
    failed: dict[Endpoint, list[FailedConnects]],
) -> Finding:
    groups = [group for worker in workers if worker.announced for group in failed.get(worker.announced, ())]
    searches = _searches(evidence, cluster)
    names = dict.fromkeys(evidence.pairs[worker.flow][1] for worker in workers)
    pairs = dict.fromkeys(
        f"{evidence.pairs[worker.flow][1]} announces {cluster_name(worker.announced)} but reaches the"
        f" scheduler from {evidence.capture.senders[worker.flow][0]}"
        for worker in workers
    )
    what = "; ".join([*pairs, *_evidence(groups, searches)])
    own = [flow for flow in evidence.flows if evidence.pairs[flow][0] == cluster]
    begin_ns = min(evidence.first_ns(worker.flow) for worker in workers)
    when = begin_ns, evidence.span(own)[1]
    sent_ns = [
        time_ns for (name, _), times in evidence.unreported.items() if name == cluster for time_ns in times
    ]
    waited_s = (when[1] - max(min(sent_ns), begin_ns)) / 1e9 if sent_ns else 0.0
    flows = tuple(worker.flow for worker in workers) + tuple(f for group in groups for f in group.flows)
    source = next(iter(names)) if len(names) == 1 else ""
    is_note = not groups and not searches and is_cheap(waited_s)
    cost_s = 0.0 if groups else waited_s  # failed connects are its consequences, with costs of their own
    return Finding(
        UNREACHABLE_ADDRESS, what, (cluster, source, ""), when, cost_s, 0.95, len(workers), flows, is_note
    )


def _evidence(groups: list[FailedConnects], searches: int) -> Iterator[str]:
    """Say what failed because of it."""
    if groups:
        peers = sorted({group.target.pair[1] for group in groups})
        number = sum(len(group.flows) for group in groups)
        yield f"{counted(number, 'connect')} of {', '.join(peers)} to it failed, and none succeeded"
    elif searches:
        yield f"no peer reached it, and workers asked {counted(searches, 'time')} where else data is"
    else:
        yield "no peer reached it"


UNREACHABLE_ADDRESS = Kind(
    name="unreachable address",
    meaning="A worker announces an address at which its peers cannot reach it.",
    threshold=(
        "it announces a loopback address to peers on other hosts, or an address from which it does not reach"
        " the scheduler; no peer reached it there, and connects failed, data was searched or tasks waited"
    ),
    advice=(
        "Start the worker with --interface, --host or --contact-address of a network that its peers reach"
        " (in a container: the host's network), and see 'daskwire nodes' and 'daskwire reach'."
    ),
    effects=frozenset({"unanswered connects", "refused connects", "wrong interface"}) | DELAYS,
    detect=find_unreachable_address,
)


# Workers that announce an address in another network than the rest of the cluster.


def find_wrong_interface(evidence: Evidence) -> Iterator[Finding]:
    """Yield workers that announce another address than the one from which they reach the scheduler."""
    capture = evidence.capture
    registered: dict[tuple[str, str, str], int] = {}
    for flow in evidence.flows:
        listener = capture.nodes.processes.get(capture.senders[flow])
        if listener and capture.senders[flow ^ 1] in capture.nodes.schedulers:
            registered[evidence.pairs[flow][0], capture.senders[flow][0], listener[0]] = flow
    direct = sum(address == listener for _, address, listener in registered)
    translated = {flow for pair in capture.translations for flow in (*pair, pair[0] ^ 1)}
    flows_at: defaultdict[str, list[int]] = defaultdict(list)
    for flow in evidence.flows:
        for address in {capture.senders[flow][0], capture.senders[flow ^ 1][0]}:
            flows_at[address].append(flow)
    for (cluster, address, announced), flow in sorted(registered.items()):
        if address == announced or not direct or flow in translated:
            continue
        data = flows_at[announced]
        if not data:
            continue
        node = evidence.pairs[flow][1]
        what = (
            f"announces {announced} but reaches the scheduler from {address} (the others announce the address"
            f" they use); {len(data) // 2} connections carry its data over {announced}"
        )
        cost_s = _extra_transfer_s(evidence, node)
        yield Finding(
            WRONG_INTERFACE, what, (cluster, node, ""), evidence.span(data), cost_s, 0.8, len(data) // 2,
            tuple(data),
        )  # fmt: skip


def _extra_transfer_s(evidence: Evidence, node: str) -> float:
    """Return how much longer a node's transfers took than at the median rate of the others."""
    table = evidence.transfers
    columns = (table["source"], table["destination"], table["wire_ms"], table["bytes"])
    rows: list[tuple[bool, float, int]] = [
        (node in ends, wire_ms, size) for *ends, wire_ms, size in zip(*columns, strict=True) if wire_ms > 0
    ]
    others = [size / wire_ms for own, wire_ms, size in rows if not own]
    if not others:
        return 0.0
    rate = float(np.median(others))
    return sum(max(wire_ms - size / rate, 0.0) for own, wire_ms, size in rows if own) / 1e3


WRONG_INTERFACE = Kind(
    name="wrong interface",
    meaning="A worker announces an address in another network than the rest of the cluster.",
    threshold=(
        "its address is not the one from which it reaches the scheduler, while other workers' is, and its"
        " data is fetched there"
    ),
    advice="Start the worker with --interface or --host of the fast network.",
    effects=frozenset({"slow link", "bufferbloat"}) | LOSSES,
    detect=find_wrong_interface,
)
