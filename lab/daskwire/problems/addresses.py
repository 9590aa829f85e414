"""Detect wrong addresses and paths: duplicate IP addresses, asymmetric paths, the wrong interface."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from daskwire.net.macs import format_mac
from daskwire.problems.finding import Finding, counted
from daskwire.problems.view import View

FEWEST = 5  # segments of a connection with one direction
ALTERNATIONS = 2  # changes of an address's MAC; after a single one, the address may have moved
Sighting = tuple[int, int]  # time in ns, MAC address


def addresses(view: View) -> Iterator[Finding]:
    yield from _duplicates(view)
    yield from _asymmetric(view)
    yield from _wrong_interfaces(view)


def _duplicates(view: View) -> Iterator[Finding]:
    """Yield addresses with several MAC addresses that no other address uses (those would be a router's)."""
    sightings, announced = _sightings(view)
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
        flows = tuple(f for f in view.flows if address in view.capture.connections.endpoints(f))
        cluster = next((view.pairs[flow][0] for flow in flows), "")
        node = view.capture.nodes.name(address, 0)
        what = (
            f"{address} is used by {' and '.join(map(format_mac, macs))}; they alternate"
            f" {counted(len(changes), 'time')}{', and both announce it' if both_announce else ''}"
        )
        yield Finding(
            "duplicate IP", what, (cluster, node, ""), (changes[0], changes[-1]), 0.0,
            0.95 if both_announce else 0.8, len(changes), flows,
            len(changes) < ALTERNATIONS and not both_announce,
        )  # fmt: skip


def _sightings(view: View) -> tuple[dict[str, list[Sighting]], dict[str, set[int]]]:
    """Return when each address was seen with which MAC address, and which ones announced it by ARP."""
    connections, macs = view.capture.connections, view.capture.macs
    result: defaultdict[str, list[Sighting]] = defaultdict(list)
    announced: defaultdict[str, set[int]] = defaultdict(set)
    for flow in view.flows:
        if flow < len(macs.source) and macs.source[flow]:
            result[connections.endpoints(flow)[0]].append((view.first_ns(flow), int(macs.source[flow])))
    changes, arp = macs.changes, macs.announcements
    columns = (changes.flow.tolist(), changes.time_ns.tolist(), changes.source.tolist())
    for flow, time_ns, mac in zip(*columns, strict=True):
        result[connections.endpoints(flow)[0]].append((time_ns, mac))
    for time_ns, code, mac in zip(arp.time_ns.tolist(), arp.address.tolist(), arp.mac.tolist(), strict=True):
        result[connections.address(code)].append((time_ns, mac))
        announced[connections.address(code)].add(mac)
    return result, announced


def one_way(view: View) -> tuple[list[int], int]:
    """Return the flows whose opposite direction was not captured, and the number of complete connections."""
    capture = view.capture
    number = np.diff(capture.lanes.begin)
    missing = capture.extents.missing
    single = [f for f in view.flows if number[f] >= FEWEST and not number[f ^ 1] and missing[f ^ 1] > 0]
    return single, sum(1 for flow in view.flows if flow % 2 == 0 and number[flow ^ 1])


def _asymmetric(view: View) -> Iterator[Finding]:
    """Yield pairs with connections of which one direction is missing, if most others are complete."""
    single, complete = one_way(view)
    if len(single) > 9 * complete:
        return  # the capture point is wrong
    for (cluster, source, destination), flows in view.by_pair(single).items():
        missing = int(view.capture.extents.missing[[flow ^ 1 for flow in flows]].sum())
        what = (
            f"{counted(len(flows), 'connection')} without packets from {destination} to {source} in the"
            f" capture, though {missing:,} bytes of them were acknowledged; {complete} other connections have"
            " both directions"
        )
        pair = cluster, destination, source
        yield Finding("asymmetric path", what, pair, view.span(flows), 0.0, 0.9, len(flows), tuple(flows))


def _wrong_interfaces(view: View) -> Iterator[Finding]:
    """Yield workers that announce another address than the one from which they reach the scheduler."""
    capture = view.capture
    registered: dict[tuple[str, str, str], int] = {}
    for flow in view.flows:
        listener = capture.nodes.processes.get(capture.senders[flow])
        if listener and capture.senders[flow ^ 1] in capture.nodes.schedulers:
            registered[view.pairs[flow][0], capture.senders[flow][0], listener[0]] = flow
    usual = sum(address == listener for _, address, listener in registered)
    translated = {flow for pair in capture.translations for flow in (*pair, pair[0] ^ 1)}
    for (cluster, address, announced), flow in sorted(registered.items()):
        data = [f for f in view.flows if announced in capture.connections.endpoints(f)]
        if address == announced or not data or not usual or flow in translated:
            continue
        node = view.pairs[flow][1]
        what = (
            f"announces {announced} but reaches the scheduler from {address} (the others announce the address"
            f" they use); {len(data) // 2} connections carry its data over {announced}"
        )
        cost_s = _extra_transfer_s(view, node)
        yield Finding(
            "wrong interface", what, (cluster, node, ""), view.span(data), cost_s, 0.8, len(data) // 2,
            tuple(data),
        )  # fmt: skip


def _extra_transfer_s(view: View, node: str) -> float:
    """Return how much longer a node's transfers took than at the median rate of the others."""
    table = view.transfers
    columns = (table["source"], table["destination"], table["wire_ms"], table["bytes"])
    rows: list[tuple[bool, float, int]] = [
        (node in ends, wire_ms, size) for *ends, wire_ms, size in zip(*columns, strict=True) if wire_ms > 0
    ]
    others = [size / wire_ms for own, wire_ms, size in rows if not own]
    if not others:
        return 0.0
    rate = float(np.median(others))
    return sum(max(wire_ms - size / rate, 0.0) for own, wire_ms, size in rows if own) / 1e3
