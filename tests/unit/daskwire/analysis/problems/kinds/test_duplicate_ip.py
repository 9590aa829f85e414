"""Two hosts with one IP address."""

from __future__ import annotations

import struct
from ipaddress import ip_address

from tests.unit.daskwire.analysis.problems.cluster import WORKERS, Cluster, Read, only
from tests.unit.daskwire.build import Packet


def with_mac(packets: list[Packet], macs: dict[str, str]) -> list[Packet]:
    """Set source MAC addresses by source IP address."""
    result = []
    for time_ns, data, length in packets:
        mac = macs.get(str(ip_address(data[26:30])), "")
        result.append((time_ns, data[:6] + bytes.fromhex(mac or "020000000099") + data[12:], length))
    return result


def arp(time_ns: int, mac: int) -> Packet:
    """Announce 10.0.0.3 with a MAC address that ends in a byte."""
    source = b"\x02\0\0\0\0" + bytes([mac])
    body = struct.pack(">HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 2, source, bytes([10, 0, 0, 3]), bytes(6), bytes(4))
    frame = b"\xff" * 6 + source + b"\x08\x06" + body
    return time_ns, frame, len(frame)


def test_duplicate_ip_is_seen_by_its_mac_addresses(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    packets = with_mac(cluster.packets, {a: f"0200000000{n:02x}" for n, a in enumerate(WORKERS.values(), 1)})
    half = len(packets) // 2
    for place in (half, half + 40):
        time_ns, data, length = next(p for p in packets[place:] if p[1][26:30] == bytes([10, 0, 0, 3]))
        other = data[:6] + b"\x02\x00\x00\x00\x00\x77" + data[12:]
        packets.append((time_ns + 1000, other, length))
    row = only(read(sorted(packets, key=lambda p: p[0])), "duplicate IP")
    assert row["source"] == "w2" and "02:00:00:00:00:02 and 02:00:00:00:00:77" in row["what"]


def test_duplicate_ip_is_seen_in_arp(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    cluster.streams["w1"].packets += [arp(cluster.at(3), 0x02), arp(cluster.at(4), 0x77)]
    row = only(read(cluster.packets), "duplicate IP")
    assert row["certainty_pct"] == 95 and "both announce it" in row["what"]


def test_clock_that_was_set_back_leaves_the_order_of_arp_packets(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    first, second = (arp(cluster.at(at), mac) for at, mac in ((1.0, 0x02), (9.0, 0x77)))
    packets = sorted([*cluster.packets, first, second], key=lambda packet: packet[0])
    middle = len(packets) // 2
    assert first[0] < packets[middle][0] < second[0]
    later = [(time_ns - 3600 * 10**9, *packet) for time_ns, *packet in packets[middle:]]
    row = only(read([*packets[:middle], *later]), "duplicate IP")
    assert str(row["what"]).startswith("10.0.0.3 is used by 02:00:00:00:00:02 and 02:00:00:00:00:77")
