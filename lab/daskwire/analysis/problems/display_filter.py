"""Wireshark display filters for the packets of a finding."""

from __future__ import annotations

from ipaddress import ip_address

from daskwire.analysis.problems.finding import Finding
from daskwire.decoder.net.connections import Connections

MAX_FLOWS = 4  # connections that a display filter lists by their ports
MARGIN_S = 0.001  # around the time of a finding


def display_filter(finding: Finding, connections: Connections) -> str:
    """Build a Wireshark display filter for the packets of a finding."""
    parts = []
    if finding.flows:
        parts.append(_address_filter(finding.flows, connections))
    if finding.kind.filter:
        parts.append(f"({finding.kind.filter})")
    if finding.when is not None:
        begin, end = finding.when[0] / 1e9 - MARGIN_S, finding.when[1] / 1e9 + MARGIN_S
        parts.append(f"frame.time_epoch >= {begin:.6f} && frame.time_epoch <= {end:.6f}")
    return " && ".join(parts)


def _address_filter(flows: tuple[int, ...], connections: Connections) -> str:
    """Select the hosts of some flows, and their ports if the flows are few."""
    ends = sorted({connections.endpoints(flow & ~1) for flow in flows})
    hosts = sorted({(a, b) if a < b else (b, a) for a, _, b, _ in ends})
    common = set.intersection(*map(set, hosts))
    if len(hosts) <= MAX_FLOWS:
        addresses = [f"({_field(a)} == {a} && {_field(b)} == {b})" for a, b in hosts]
    else:
        addresses = [f"{_field(a)} == {a}" for a in sorted(common or {a for pair in hosts for a in pair})]
    parts = [_any_of(addresses)]
    if len(ends) <= MAX_FLOWS:
        parts.append(_any_of([f"(tcp.port == {a} && tcp.port == {b})" for _, a, _, b in ends]))
    return " && ".join(parts)


def _any_of(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({' || '.join(parts)})"


def _field(address: str) -> str:
    return "ipv6.addr" if ip_address(address).version == 6 else "ip.addr"
