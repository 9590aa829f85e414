"""Decode tunnels (overlay networks, mirror ports): inner packets are parsed as if captured by themselves.

Supported: IP in IP (RFC 2003, 4213); GRE (RFC 2784, 2890) with IP, Ethernet (NVGRE) or ERSPAN; VXLAN (RFC
7348, also on Linux's older port); Geneve (RFC 8926). Encrypted and unsupported tunnels are counted by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from daskwire.base.arrays import Flags, Ints
from daskwire.decoder.net.packets import skipped
from daskwire.decoder.net.packets.layers import Batch, Internet, Layer, some, u8, u16
from daskwire.decoder.net.packets.skipped import protocol_reasons

ETHERNET, RAW = 1, 101  # pcap link types of inner packets
IP, BRIDGED, ERSPAN_2, ERSPAN_3 = (0x0800, 0x86DD), 0x6558, 0x88BE, 0x22EB
IP_IN_IP, UDP, GRE = (4, 41), 17, 47
UDP_HEADER, VXLAN_HEADER, ETHERNET_HEADER = 8, 8, 14
VXLAN, GENEVE = "vxlan", "geneve"
TUNNEL_PORTS = {4789: VXLAN, 8472: VXLAN, 6081: GENEVE}  # UDP port -> kind of tunnel
OPAQUE_PROTOCOLS = {50: "IPsec (ESP)", 51: "IPsec (AH)", 115: "L2TP"}
OPAQUE_PORTS = {
    51820: "WireGuard", 51821: "WireGuard", 51871: "WireGuard", 4500: "IPsec (UDP)", 1194: "OpenVPN",
    1701: "L2TP", 2152: "GTP-U", 6635: "MPLS (UDP)",
}  # fmt: skip
UDP_PORT = "UDP port"  # prefix of the tally's names for unknown ports
Tunnel = tuple[Flags, Ints]  # which packets are such a tunnel, and where the inner packets begin


def inside(batch: Batch, packets: Internet) -> Iterator[tuple[int, Layer]]:
    """Yield the inner packets of tunnels among IP packets that are not TCP: link type and layer."""
    long = packets.at + UDP_HEADER <= packets.end
    if not long.all():
        batch.shared.tally.skipped.update(protocol_reasons(packets.protocol[~long]))
        packets = some(packets, long)
    for name, link, parse in TUNNELS:
        if not len(packets.at):
            return
        matches, at = parse(batch, packets)
        matches &= at <= packets.end
        if matches.any():
            batch.shared.tally.tunnels[name] += int(matches.sum())
            yield link, some(packets, matches).layer(at[matches])
            packets = some(packets, ~matches)
    _count(batch, packets)


def _ip_in_ip(batch: Batch, packets: Internet) -> Tunnel:
    return np.isin(packets.protocol, IP_IN_IP), packets.at


def _gre(batch: Batch, packets: Internet, kinds: tuple[int, ...]) -> Tunnel:
    flags = u16(batch.view, packets.at)
    plain = flags & 0x4F07 == 0  # no routing, no recursion, version 0
    matches = (packets.protocol == GRE) & plain & np.isin(u16(batch.view, packets.at + 2), kinds)
    optional = sum((flags >> bit & 1).astype(np.int64) for bit in (15, 13, 12))  # checksum, key, sequence
    return matches, packets.at + 4 + 4 * optional


def _gre_ip(batch: Batch, packets: Internet) -> Tunnel:
    return _gre(batch, packets, IP)


def _gre_bridged(batch: Batch, packets: Internet) -> Tunnel:
    return _gre(batch, packets, (BRIDGED,))


def _erspan(batch: Batch, packets: Internet) -> Tunnel:
    """Parse ERSPAN. Type I has neither header nor sequence number, II has 8 bytes, III 12 or 20."""
    matches, at = _gre(batch, packets, (ERSPAN_2, ERSPAN_3))
    type_3 = u16(batch.view, packets.at + 2) == ERSPAN_3
    numbered = u16(batch.view, packets.at) & 0x1000 != 0
    sub_header = 8 * (u8(batch.view, np.minimum(at + 11, packets.end)) & 1).astype(np.int64)
    return matches, at + np.where(type_3, 12 + sub_header, np.where(numbered, 8, 0))


def _vxlan(batch: Batch, packets: Internet) -> Tunnel:
    at = packets.at + UDP_HEADER
    valid = u8(batch.view, at) & 0x08 != 0
    return _to_port(batch, packets, VXLAN) & valid, at + VXLAN_HEADER


def _geneve(batch: Batch, packets: Internet) -> Tunnel:
    at = packets.at + UDP_HEADER
    options = (u8(batch.view, at) & 0x3F).astype(np.int64) * 4
    return _to_port(batch, packets, GENEVE) & (u16(batch.view, at + 2) == BRIDGED), at + 8 + options


def _to_port(batch: Batch, packets: Internet, kind: str) -> Flags:
    ports = [port for port, port_kind in batch.shared.tunnel_ports.items() if port_kind == kind]
    is_udp: Flags = packets.protocol == UDP
    return is_udp & np.isin(u16(batch.view, packets.at + 2), ports)


TUNNELS: tuple[tuple[str, int, Callable[[Batch, Internet], Tunnel]], ...] = (
    ("VXLAN", ETHERNET, _vxlan),
    ("Geneve", ETHERNET, _geneve),
    ("IP in IP", RAW, _ip_in_ip),
    ("GRE", RAW, _gre_ip),
    ("GRE", ETHERNET, _gre_bridged),
    ("ERSPAN", ETHERNET, _erspan),
)


def _count(batch: Batch, packets: Internet) -> None:
    """Count the packets that are neither TCP nor a supported tunnel."""
    tally = batch.shared.tally
    for protocol, name in OPAQUE_PROTOCOLS.items():
        tally.opaque[name] += int((packets.protocol == protocol).sum())
    is_udp = packets.protocol == UDP
    tally.skipped.update(protocol_reasons(packets.protocol[~is_udp]))
    _count_udp(batch, some(packets, is_udp))


def _count_udp(batch: Batch, packets: Internet) -> None:
    vxlan, tally = _looks_like_vxlan(batch, packets), batch.shared.tally
    for port, number in _ports(batch, some(packets, vxlan)):
        name = f"VXLAN on {UDP_PORT} {port}"
        tally.opaque[name] += number
        tally.skipped[name] += number
    for port, number in _ports(batch, some(packets, ~vxlan)):
        kind = OPAQUE_PORTS.get(port)
        tally.opaque[kind or f"{UDP_PORT} {port}"] += number
        tally.skipped[kind or skipped.UDP] += number


def _ports(batch: Batch, packets: Internet) -> Iterator[tuple[int, int]]:
    """Yield each destination port and its number of packets."""
    ports, numbers = np.unique(u16(batch.view, packets.at + 2), return_counts=True)
    return zip(ports.tolist(), numbers.tolist(), strict=True)


def _looks_like_vxlan(batch: Batch, packets: Internet) -> Flags:
    """Recognise VXLAN on another port by its flags, its reserved bytes and an inner frame with IP."""
    at = packets.at + UDP_HEADER
    matches: Flags = at + VXLAN_HEADER + ETHERNET_HEADER <= packets.end
    for offset, value in ((0, 0x0800), (2, 0)):
        matches[matches] &= u16(batch.view, at[matches] + offset) == value
    matches[matches] &= u8(batch.view, at[matches] + 7) == 0
    matches[matches] &= np.isin(u16(batch.view, at[matches] + VXLAN_HEADER + 12), IP)
    return matches
