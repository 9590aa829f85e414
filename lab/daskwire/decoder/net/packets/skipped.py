"""Reasons for skipping a packet. A packet is a TCP segment, or is counted once under one of these reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from daskwire.base.arrays import U8, U16, Array

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
