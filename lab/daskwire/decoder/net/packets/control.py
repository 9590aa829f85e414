"""Parse ICMP errors and DNS packets, see ``notices``. There are few, so each is parsed by itself."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import ip_address

import numpy as np

from daskwire.decoder.net.packets.layers import Batch, Internet, some, u8, u16
from daskwire.decoder.net.packets.notices import (
    MAX_NOTICES_OF_A_KIND,
    PORT_UNREACHABLE,
    TOO_BIG,
    DnsPacket,
    IcmpError,
)

ICMP, ICMPV6, UDP, DNS_PORT = 1, 58, 17, 53
PROHIBITED, NO_HOST, NO_NETWORK = "administratively prohibited", "host unreachable", "network unreachable"
TIME_EXCEEDED = "time exceeded: a routing loop"
ERRORS = {  # protocol, type and code; code None stands for any other
    (ICMP, 3, 0): NO_NETWORK, (ICMP, 3, 1): NO_HOST, (ICMP, 3, 3): PORT_UNREACHABLE, (ICMP, 3, 4): TOO_BIG,
    (ICMP, 3, 9): PROHIBITED, (ICMP, 3, 10): PROHIBITED, (ICMP, 3, 13): PROHIBITED,
    (ICMP, 3, None): "destination unreachable", (ICMP, 11, 0): TIME_EXCEEDED,
    (ICMPV6, 1, 0): NO_NETWORK, (ICMPV6, 1, 1): PROHIBITED, (ICMPV6, 1, 3): NO_HOST,
    (ICMPV6, 1, 4): PORT_UNREACHABLE, (ICMPV6, 1, 5): PROHIBITED, (ICMPV6, 1, 6): PROHIBITED,
    (ICMPV6, 1, None): "destination unreachable", (ICMPV6, 2, None): TOO_BIG, (ICMPV6, 3, 0): TIME_EXCEEDED,
}  # fmt: skip
ICMP_HEADER, UDP_HEADER, DNS_HEADER = 8, 8, 12
LONGEST = 512  # bytes of a packet that are looked at
MAX_NAME = 255


def note_control(batch: Batch, packets: Internet) -> None:
    """Note the ICMP errors and DNS packets among IP packets that are not TCP."""
    notices = batch.shared.notices
    long = packets.at + ICMP_HEADER <= packets.end
    if long.any() and len(notices.icmp) < MAX_NOTICES_OF_A_KIND:
        notices.add_icmp(_icmp_errors(batch, some(packets, long & np.isin(packets.protocol, (ICMP, ICMPV6)))))
    datagrams = some(packets, long & (packets.protocol == UDP))
    if len(datagrams.at) and len(notices.dns) < MAX_NOTICES_OF_A_KIND:
        ports = u16(batch.view, datagrams.at), u16(batch.view, datagrams.at + 2)
        notices.add_dns(_dns_packets(batch, some(datagrams, (ports[0] == DNS_PORT) | (ports[1] == DNS_PORT))))


def _icmp_errors(batch: Batch, packets: Internet) -> Iterator[IcmpError]:
    kinds = u8(batch.view, packets.at)
    errors = some(packets, np.where(packets.protocol == ICMP, np.isin(kinds, (3, 11)), kinds < 4))
    for row, body in _bodies(batch, errors):
        protocol, kind = int(errors.protocol[row]), body[0]
        error = ERRORS.get((protocol, kind, body[1])) or ERRORS.get((protocol, kind, None))
        inner = _inner_packet(body[ICMP_HEADER:])
        if error is None or inner is None:
            continue
        mtu = struct.unpack_from(">H" if protocol == ICMP else ">I", body, 6 if protocol == ICMP else 4)[0]
        yield IcmpError(
            int(batch.records.time_ns[errors.row[row]]),
            int(batch.addresses[errors.row[row]]),
            batch.shared.connections.address(int(errors.source[row])),
            error,
            mtu if error == TOO_BIG else 0,
            *inner,
        )


def _inner_packet(data: bytes) -> tuple[int, tuple[str, int], tuple[str, int]] | None:
    """Return protocol, source and destination of the packet that an ICMP error contains."""
    if len(data) >= 20 and data[0] >> 4 == 4:
        protocol, size, ends = data[9], 4 * (data[0] & 15), (data[12:16], data[16:20])
    elif len(data) >= 40 and data[0] >> 4 == 6:
        protocol, size, ends = data[6], 40, (data[8:24], data[24:40])
    else:
        return None
    ports = struct.unpack_from(">HH", data, size) if len(data) >= size + 4 else (0, 0)
    source, destination = ((str(ip_address(end)), port) for end, port in zip(ends, ports, strict=True))
    return protocol, source, destination


def _dns_packets(batch: Batch, packets: Internet) -> Iterator[DnsPacket]:
    for row, body in _bodies(batch, packets):
        if len(body) < UDP_HEADER + DNS_HEADER + 2:
            continue
        ports = struct.unpack_from(">HH", body)
        number, flags, questions, records = struct.unpack_from(">4H", body, UDP_HEADER)
        is_answer = bool(flags & 0x8000)
        name = _name(body[UDP_HEADER + DNS_HEADER :])
        if questions != 1 or not name or ports[not is_answer] != DNS_PORT:
            continue
        ends = [
            batch.shared.connections.address(int(end[row])) for end in (packets.source, packets.destination)
        ]
        yield DnsPacket(
            int(batch.records.time_ns[packets.row[row]]),
            int(batch.addresses[packets.row[row]]),
            (ends[is_answer], ports[is_answer]),
            ends[not is_answer],
            number,
            name,
            flags & 15 if is_answer else None,
            records if is_answer else 0,
        )


def _name(data: bytes) -> str:
    """Read a domain name, nothing if it is damaged. Names in questions are not compressed."""
    labels, at = [], 0
    while at < min(len(data), MAX_NAME) and data[at]:
        if data[at] > 63 or at + 1 + data[at] > len(data):
            return ""
        labels.append(data[at + 1 : at + 1 + data[at]].decode("ascii", "backslashreplace"))
        at += 1 + data[at]
    return ".".join(labels).lower()


def _bodies(batch: Batch, packets: Internet) -> Iterator[tuple[int, bytes]]:
    """Yield index and payload of each packet."""
    for row, (at, end) in enumerate(zip(packets.at.tolist(), packets.end.tolist(), strict=True)):
        yield row, bytes(batch.view[at : min(end, at + LONGEST)])
