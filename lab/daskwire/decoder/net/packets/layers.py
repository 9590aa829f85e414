"""Layers of a packet: header fields, reasons for skipping it, tunnels and the packets in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

import numpy as np

from daskwire.base.arrays import U8, U16, U32, U64, Array, Flags, Ints, Signed, overlapping
from daskwire.decoder.file.records import Records
from daskwire.decoder.net.connections import Connections
from daskwire.decoder.net.packets.notices import Macs, Notices
from daskwire.decoder.net.packets.tcp_options import DuplicateSacks
from daskwire.decoder.net.segments import Tally

# Capture points: an interface of a machine, outside of tunnels or within one.

CapturePoint = tuple[int, int, int]  # file, interface, depth of the tunnel


class CapturePoints:
    """Numbers of the capture points."""

    def __init__(self) -> None:
        self._numbers: dict[CapturePoint, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, point: CapturePoint) -> int:
        return self._numbers.setdefault(point, len(self._numbers))

    def files(self) -> Ints:
        """Return the file of each capture point."""
        return np.array([file for file, _, _ in self._numbers], np.int64)

    def merged(self, recording: list[int]) -> Ints:
        """Return a new number for each point, the same one for all files of a recording."""
        numbers: dict[CapturePoint, int] = {}
        return np.array(
            [
                numbers.setdefault((recording[file], interface, depth), len(numbers))
                for file, interface, depth in self._numbers
            ],
            np.int64,
        )


# The data that one protocol layer's parser passes to the next, and functions that read header fields.
#
# One gather of a few bytes at computed positions replaces a loop over packets. Each field of the gathered
# headers is then a column for array arithmetic.

Some = TypeVar("Some", "Layer", "Internet")


@dataclass(frozen=True)
class Shared:
    """What the parsers of all batches share: a setting, and the objects that collect the results."""

    tunnel_ports: Mapping[int, str]  # UDP port -> kind of tunnel
    connections: Connections = field(default_factory=Connections)
    tally: Tally = field(default_factory=Tally)
    points: CapturePoints = field(default_factory=CapturePoints)
    macs: Macs = field(default_factory=Macs)
    notices: Notices = field(default_factory=Notices)
    duplicate_sacks: DuplicateSacks = field(default_factory=DuplicateSacks)

    def shift(self, addresses: range, offset_ns: int) -> None:
        """Add to the times of the packets at some addresses. Segments have columns of their own."""
        self.macs.shift(addresses, offset_ns)
        self.notices.shift(addresses, offset_ns)


@dataclass(frozen=True)
class Batch:
    """Packets of one file that are parsed together.

    The first byte of ``view`` has the address ``base``.
    """

    view: memoryview
    base: int
    records: Records
    shared: Shared
    file: int

    @property
    def addresses(self) -> Ints:
        """Where each packet is in memory."""
        return self.base + self.records.offset


@dataclass(frozen=True)
class Layer:
    """Where the next header of each packet begins, as arrays of equal length.

    Attributes:
        at: position of the next header.
        end: end of the captured bytes.
        wire_end: where the packet would end if it had been captured whole.
        row: index of the packet in its batch.
    """

    at: Ints
    end: Ints
    wire_end: Ints
    row: Ints

    def moved(self, at: Ints) -> Layer:
        """Return the same packets with the next header at another position."""
        return Layer(at, self.end, self.wire_end, self.row)


@dataclass(frozen=True)
class Internet:
    """IP packets, as arrays of equal length.

    Attributes:
        at: position of the payload.
        available: captured bytes of the payload.
        row: index of the packet in its batch.
        protocol: IP protocol number.
        above: length of the payload according to the IP header.
        length: total length according to the IP header.
        source: code of the source address, see ``Connections``.
        destination: code of the destination address.
        identification: IPv4 identification, 0 for IPv6.
    """

    at: Ints
    available: Signed
    row: Ints
    protocol: U8
    above: Signed
    length: Signed
    source: U64
    destination: U64
    identification: U16

    @property
    def end(self) -> Ints:
        """The end of the captured bytes of each packet."""
        return self.at + self.available

    def layer(self, at: Ints) -> Layer:
        """Return the inner packets, which begin at ``at`` and end where the IP header says."""
        return Layer(at, self.end, self.at + self.above, self.row)


def some(packets: Some, which: Array) -> Some:
    """Select packets by a mask or by indices."""
    return type(packets)(*(getattr(packets, f.name)[which] for f in fields(packets)))


def gather(view: memoryview, at: Ints, header: np.dtype[np.void]) -> Array:
    """Read the header at each position."""
    return overlapping(view, 0, header.itemsize)[at].view(header)


def u16(view: memoryview, at: Ints) -> U16:
    """Read the big-endian 16-bit word at each position."""
    words: U16 = np.ndarray((len(view) - 1,), ">u2", view, 0, (1,))
    return words[at].astype(np.uint16)


def u32(view: memoryview, at: Ints) -> U32:
    """Read the big-endian 32-bit word at each position."""
    words: U32 = np.ndarray((len(view) - 3,), ">u4", view, 0, (1,))
    return words[at].astype(np.uint32)


def u8(view: memoryview, at: Ints) -> U8:
    return np.frombuffer(view, np.uint8)[at]


# Reasons for skipping a packet. A packet is a TCP segment, or is counted once under one of these reasons.

CUT_IP, CUT_TCP = "truncated before the end of the IP header", "truncated before the end of the TCP header"
FRAGMENTS, TOO_DEEP, BAD_IP = "IP fragments", "tunnels nested too deep", "damaged IP header"
NO_IP = "neither IPv4 nor IPv6"
UDP = "UDP"
LINKS = {
    9: "PPP", 50: "PPP in HDLC", 51: "PPPoE", 105: "802.11", 119: "Prism", 127: "802.11 with radiotap",
    189: "USB", 192: "PPI", 220: "USB", 239: "NFLOG", 249: "USB", 253: "Netlink",
}  # fmt: skip
ETHERTYPES = {
    0x0806: "ARP", 0x8035: "RARP", 0x8100: "more than three VLAN tags", 0x8808: "Ethernet flow control",
    0x8809: "LACP", 0x8847: "MPLS", 0x8848: "MPLS", 0x8863: "PPPoE", 0x8864: "PPPoE", 0x888E: "802.1X",
    0x88CC: "LLDP", 0x88E5: "MACsec", 0x88E7: "PBB (MAC in MAC)", 0x88F7: "PTP", 0x894F: "NSH",
}  # fmt: skip
MIN_ETHERTYPE = 0x600  # lower values are lengths, followed by an 802.2 header
LENGTH = "802.2 (spanning tree and similar)"
PROTOCOLS = {
    1: "ICMP", 2: "IGMP", 4: "IP in IP", 17: UDP, 41: "IP in IP", 44: FRAGMENTS, 47: "GRE of an unknown kind",
    50: "IPsec (ESP)", 51: "IPsec (AH)", 58: "ICMPv6", 88: "EIGRP", 89: "OSPF", 103: "PIM", 112: "VRRP",
    115: "L2TP", 132: "SCTP",
}  # fmt: skip
ORDINARY = frozenset({  # common on any network, and never Dask
    "ARP", "RARP", "LACP", "LLDP", "802.1X", "PTP", LENGTH, "Ethernet flow control", "ICMP", "ICMPv6", "IGMP",
    UDP, "EIGRP", "OSPF", "PIM", "VRRP", "SCTP",
})  # fmt: skip


def link_reason(link: int) -> str:
    """Return the reason for packets with an unsupported link type."""
    return f"link type {link} ({LINKS[link]})" if link in LINKS else f"link type {link}"


def ethertype_reasons(kinds: U16) -> Counter[str]:
    """Count frames without IP by reason, from their EtherTypes."""
    return _by_reason(kinds, lambda kind: ETHERTYPES.get(kind) or _ethertype(kind))


def protocol_reasons(protocols: U8) -> Counter[str]:
    """Count IP packets other than TCP by reason, from their protocol numbers."""
    return _by_reason(protocols, lambda number: PROTOCOLS.get(number) or f"IP protocol {number}")


def _ethertype(kind: int) -> str:
    return LENGTH if kind < MIN_ETHERTYPE else f"EtherType 0x{kind:04x}"


def _by_reason(values: Array, reason: Callable[[int], str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    unique, numbers = np.unique(values, return_counts=True)
    for value, number in zip(unique.tolist(), numbers.tolist(), strict=True):
        counts[reason(value)] += number
    return counts


# Decode tunnels (overlay networks, mirror ports): inner packets are parsed as if captured by themselves.
#
# Supported: IP in IP (RFC 2003, 4213); GRE (RFC 2784, 2890) with IP, Ethernet (NVGRE) or ERSPAN; VXLAN (RFC
# 7348, also on Linux's older port); Geneve (RFC 8926). Encrypted and unsupported tunnels are counted by
# name.

ETHERNET, RAW = 1, 101  # pcap link types of inner packets
IP, BRIDGED, ERSPAN_2, ERSPAN_3 = (0x0800, 0x86DD), 0x6558, 0x88BE, 0x22EB
IP_IN_IP, UDP_PROTOCOL, GRE = (4, 41), 17, 47
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
    is_udp: Flags = packets.protocol == UDP_PROTOCOL
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
    is_udp = packets.protocol == UDP_PROTOCOL
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
        tally.skipped[kind or UDP] += number


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
