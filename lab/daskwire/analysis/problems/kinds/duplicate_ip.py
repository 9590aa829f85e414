"""Two hosts with the same IP address."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from daskwire.analysis.problems.evidence.evidence import Evidence
from daskwire.analysis.problems.finding import FAILURES, LOSSES, Finding, Kind, counted
from daskwire.decoder.net.packets.macs import format_mac

MIN_CHANGES = 2  # after a single change of its MAC address, an IP address may have moved
Sighting = tuple[int, int]  # time in ns, MAC address


def detect(evidence: Evidence) -> Iterator[Finding]:
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
            KIND, what, (cluster, node, ""), (changes[0], changes[-1]), 0.0,
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


KIND = Kind(
    name="duplicate IP",
    meaning="Two hosts use the same IP address, so packets reach one or the other.",
    threshold=(
        "the packets of an IP address have two MAC addresses of its own in alternation, or both announce it"
        " by ARP"
    ),
    advice="Find the second host by its MAC address (ip neigh, the switch's table), and change its address.",
    filter="arp || tcp.flags.reset == 1",
    effects=FAILURES | LOSSES,
    detect=detect,
)
