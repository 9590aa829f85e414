"""Networks inside networks, as Kubernetes and switches that mirror lay them: what is inside is parsed as if
it had been captured alone.

IP in IP (RFC 2003, 4213); GRE (RFC 2784, 2890) with IP, Ethernet (NVGRE) or ERSPAN in it; VXLAN (RFC 7348,
also on Linux' older port); Geneve (RFC 8926). What is encrypted, or not known here, is counted by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from daskwire.arrays import Flags, Ints
from daskwire.net import skipped
from daskwire.net.layers import Batch, Internet, Layer, some, u8, u16
from daskwire.net.skipped import protocol_reasons

ETHERNET, RAW = 1, 101  # pcap link types of what is inside
IP, BRIDGED, ERSPAN_2, ERSPAN_3 = (0x0800, 0x86DD), 0x6558, 0x88BE, 0x22EB
IP_IN_IP, UDP, GRE = (4, 41), 17, 47
UDP_HEADER, VXLAN_HEADER, ETHERNET_HEADER = 8, 8, 14
VXLAN_PORTS, GENEVE_PORTS = (4789, 8472), (6081,)
OPAQUE_PROTOCOLS = {50: "IPsec (ESP)", 51: "IPsec (AH)", 115: "L2TP"}
OPAQUE_PORTS = {
    51820: "WireGuard", 51821: "WireGuard", 51871: "WireGuard", 4500: "IPsec (UDP)", 1194: "OpenVPN",
    1701: "L2TP", 2152: "GTP-U", 6635: "MPLS (UDP)",
}  # fmt: skip
UDP_PORT = "UDP port"  # and its number: in the tally what goes to no known one
Found = tuple[Flags, Ints]  # which packets are such a tunnel, and where what is inside begins


def inside(batch: Batch, packets: Internet) -> Iterator[tuple[int, Layer]]:
    """What tunnels carry among IP packets that are not TCP: link type, and where it begins."""
    long = packets.at + UDP_HEADER <= packets.end
    if not long.all():
        batch.tally.skipped.update(protocol_reasons(packets.protocol[~long]))
        packets = some(packets, long)
    for name, link, parse in TUNNELS:
        if not len(packets.at):
            return
        mine, at = parse(batch, packets)
        mine &= at <= packets.end
        if mine.any():
            batch.tally.tunnels[name] += int(mine.sum())
            yield link, some(packets, mine).layer(at[mine])
            packets = some(packets, ~mine)
    _count(batch, packets)


def _ip_in_ip(batch: Batch, packets: Internet) -> Found:
    return np.isin(packets.protocol, IP_IN_IP), packets.at


def _gre(batch: Batch, packets: Internet, kinds: tuple[int, ...]) -> Found:
    flags = u16(batch.view, packets.at)
    plain = flags & 0x4F07 == 0  # no routing, no recursion, version 0
    mine = (packets.protocol == GRE) & plain & np.isin(u16(batch.view, packets.at + 2), kinds)
    optional = sum((flags >> bit & 1).astype(np.int64) for bit in (15, 13, 12))  # checksum, key, sequence
    return mine, packets.at + 4 + 4 * optional


def _gre_ip(batch: Batch, packets: Internet) -> Found:
    return _gre(batch, packets, IP)


def _gre_bridged(batch: Batch, packets: Internet) -> Found:
    return _gre(batch, packets, (BRIDGED,))


def _erspan(batch: Batch, packets: Internet) -> Found:
    """Type I has no header of its own and no sequence number, II eight bytes, III twelve and maybe more."""
    mine, at = _gre(batch, packets, (ERSPAN_2, ERSPAN_3))
    third = u16(batch.view, packets.at + 2) == ERSPAN_3
    numbered = u16(batch.view, packets.at) & 0x1000 != 0
    more = 8 * (u8(batch.view, np.minimum(at + 11, packets.end)) & 1).astype(np.int64)
    return mine, at + np.where(third, 12 + more, np.where(numbered, 8, 0))


def _vxlan(batch: Batch, packets: Internet) -> Found:
    at = packets.at + UDP_HEADER
    says_so = u8(batch.view, at) & 0x08 != 0
    return _to_port(batch, packets, VXLAN_PORTS) & says_so, at + VXLAN_HEADER


def _geneve(batch: Batch, packets: Internet) -> Found:
    at = packets.at + UDP_HEADER
    options = (u8(batch.view, at) & 0x3F).astype(np.int64) * 4
    return _to_port(batch, packets, GENEVE_PORTS) & (u16(batch.view, at + 2) == BRIDGED), at + 8 + options


def _to_port(batch: Batch, packets: Internet, ports: tuple[int, ...]) -> Flags:
    mine: Flags = packets.protocol == UDP
    return mine & np.isin(u16(batch.view, packets.at + 2), ports)


TUNNELS: tuple[tuple[str, int, Callable[[Batch, Internet], Found]], ...] = (
    ("VXLAN", ETHERNET, _vxlan),
    ("Geneve", ETHERNET, _geneve),
    ("IP in IP", RAW, _ip_in_ip),
    ("GRE", RAW, _gre_ip),
    ("GRE", ETHERNET, _gre_bridged),
    ("ERSPAN", ETHERNET, _erspan),
)


def _count(batch: Batch, packets: Internet) -> None:
    """Count what is neither TCP nor a tunnel that can be looked into."""
    tally = batch.tally
    for protocol, name in OPAQUE_PROTOCOLS.items():
        tally.opaque[name] += int((packets.protocol == protocol).sum())
    is_udp = packets.protocol == UDP
    tally.skipped.update(protocol_reasons(packets.protocol[~is_udp]))
    _count_udp(batch, some(packets, is_udp))


def _count_udp(batch: Batch, packets: Internet) -> None:
    vxlan, tally = _looks_like_vxlan(batch, packets), batch.tally
    for port, number in _ports(batch, some(packets, vxlan)):
        name = f"VXLAN on {UDP_PORT} {port}"
        tally.opaque[name] += number
        tally.skipped[name] += number
    for port, number in _ports(batch, some(packets, ~vxlan)):
        known = OPAQUE_PORTS.get(port)
        tally.opaque[known or f"{UDP_PORT} {port}"] += number
        tally.skipped[known or skipped.UDP] += number


def _ports(batch: Batch, packets: Internet) -> Iterator[tuple[int, int]]:
    """Destination ports, and how many packets go to each."""
    ports, numbers = np.unique(u16(batch.view, packets.at + 2), return_counts=True)
    return zip(ports.tolist(), numbers.tolist(), strict=True)


def _looks_like_vxlan(batch: Batch, packets: Internet) -> Flags:
    """Recognise VXLAN on another port by its flags, its reserved bytes and a frame that carries IP."""
    at = packets.at + UDP_HEADER
    mine: Flags = at + VXLAN_HEADER + ETHERNET_HEADER <= packets.end
    for place, value in ((0, 0x0800), (2, 0)):
        mine[mine] &= u16(batch.view, at[mine] + place) == value
    mine[mine] &= u8(batch.view, at[mine] + 7) == 0
    mine[mine] &= np.isin(u16(batch.view, at[mine] + VXLAN_HEADER + 12), IP)
    return mine
