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
    for number, mac in enumerate((b"\x02\0\0\0\0\x02", b"\x02\0\0\0\0\x77")):
        arp = struct.pack(">HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 2, mac, bytes([10, 0, 0, 3]), bytes(6), bytes(4))
        frame = b"\xff" * 6 + mac + b"\x08\x06" + arp
        cluster.streams["w1"].packets.append((cluster.at(3 + number), frame, len(frame)))
    row = only(read(cluster.packets), "duplicate IP")
    assert row["certainty_pct"] == 95 and "both announce it" in row["what"]
