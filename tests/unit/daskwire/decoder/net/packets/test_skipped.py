"""Every packet is a TCP segment or is counted under a reason."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from daskwire import Capture, rows, summarise
from daskwire.terminal.cli import wire

from tests.unit.daskwire.build import GOLDEN, Packet, block, golden_bytes, pcap, pcapng, small_talk
from tests.unit.daskwire.decoder.net.packets.test_tunnels import IPV4_ONLY, WAYS, ipv4, ipv6, udp, wrapped

Read = Callable[..., Capture]
BEATS = small_talk().packets
NUMBER = len(BEATS)


def framed(kind: int, body: bytes = bytes(46)) -> Callable[[bytes], bytes]:
    return lambda data: data[:12] + struct.pack(">H", kind) + body


def all_counted(capture: Capture) -> bool:
    return capture.packets == len(capture.segments) + sum(capture.skipped.values())


FRAMES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "mpls": ("MPLS", lambda d: d[:12] + b"\x88\x47\0\x01\x01\x40" + d[14:]),
    "mpls multicast": ("MPLS", framed(0x8848)),
    "pppoe": ("PPPoE", lambda d: d[:12] + b"\x88\x64\x11\0\0\x01\0\x40\0\x21" + d[14:]),
    "pppoe discovery": ("PPPoE", framed(0x8863)),
    "arp": ("ARP", framed(0x0806)),
    "lldp": ("LLDP", framed(0x88CC)),
    "macsec": ("MACsec", framed(0x88E5)),
    "spanning tree": ("802.2 (spanning tree and similar)", framed(0x0026)),
    "unknown": ("EtherType 0x9999", framed(0x9999)),
    "unknown in a vlan": ("EtherType 0x9999", lambda d: d[:12] + b"\x81\0\0\x05\x99\x99" + bytes(60)),
    "four vlan tags": ("more than three VLAN tags", lambda d: d[:12] + b"\x81\0\0\x05" * 4 + d[12:]),
    "first fragments": ("IP fragments", lambda d: d[:20] + b"\x20\0" + d[22:]),
    "later fragments": ("IP fragments", lambda d: d[:20] + b"\0\x10" + d[22:]),
    "fragments of IPv6": ("IP fragments", lambda d: ipv6(44, d[34:])),
    "damaged header": ("damaged IP header", lambda d: d[:14] + b"\x43" + d[15:]),
    "icmp": ("ICMP", lambda d: ipv4(1, d[34:])),
    "icmpv6": ("ICMPv6", lambda d: ipv6(58, d[34:])),
    "sctp": ("SCTP", lambda d: ipv4(132, d[34:])),
    "udp": ("UDP", lambda d: ipv4(17, udp(53, d[34:]))),
    "udp that is cut": ("UDP", lambda d: ipv4(17, b"\0\x01\0")),
    "an unknown protocol": ("IP protocol 200", lambda d: ipv4(200, d[34:])),
    "esp": ("IPsec (ESP)", lambda d: ipv4(50, d[34:])),
    "wireguard": ("WireGuard", lambda d: ipv4(17, udp(51820, d))),
    "vxlan on another port": (
        "VXLAN on UDP port 5555",
        lambda d: ipv4(17, udp(5555, b"\x08" + bytes(7) + d)),
    ),
    "gre of another kind": ("GRE of an unknown kind", lambda d: ipv4(47, b"\0\0\x88\x0b" + d[14:])),
    "deep tunnels": (
        "tunnels nested too deep",
        lambda d: ipv4(4, ipv4(4, ipv4(4, ipv4(4, ipv4(4, d[14:])[14:])[14:])[14:])[14:]),
    ),
    "icmp in vxlan": ("ICMP", lambda d: WAYS["vxlan"][1](ipv4(1, d[34:]))),
    "mpls in gre": ("MPLS", lambda d: WAYS["nvgre"][1](framed(0x8847)(d))),
}


@pytest.mark.parametrize("what", FRAMES)
def test_skipped_packets_are_counted_by_reason(read: Read, tmp_path: Path, what: str) -> None:
    reason, change = FRAMES[what]
    other = [(t, change(d), len(change(d))) for t, d, _ in BEATS]
    capture = read(sorted(BEATS + other, key=lambda p: p[0]))
    assert capture.skipped == {reason: NUMBER} and all_counted(capture)
    assert summarise(capture)["skipped_packets"] == {reason: NUMBER}
    shown = CliRunner().invoke(wire, [str(tmp_path / "capture.pcap")], catch_exceptions=False).stdout
    assert f"{NUMBER} packets were not decoded: {reason} {NUMBER}" in shown


@pytest.mark.parametrize(("link", "reason"), [
    (147, "link type 147"), (9, "link type 9 (PPP)"), (127, "link type 127 (802.11 with radiotap)"),
    (101, "neither IPv4 nor IPv6"),
])  # fmt: skip
def test_unsupported_link_types_are_counted(read: Read, link: int, reason: str) -> None:
    capture = read(pcap(BEATS, link=link))
    assert capture.skipped == {reason: NUMBER} and all_counted(capture)
    (row,) = rows(capture.table("problems"))
    assert (row["problem"], row["severity"], row["number"]) == ("undecoded capture", "problem", NUMBER)
    assert row["what"] == f"{NUMBER} of {NUMBER} packets: {reason} {NUMBER}"


@pytest.mark.parametrize(("snaplen", "reasons"), [
    (10, {"truncated before the end of the IP header"}), (20, {"truncated before the end of the IP header"}),
    (40, {"truncated before the end of the TCP header"}), (54, set()),
])  # fmt: skip
def test_truncated_packets_are_counted(read: Read, snaplen: int, reasons: set[str]) -> None:
    capture = read(pcap(BEATS, snaplen=snaplen))
    assert set(capture.skipped) == reasons and all_counted(capture)


def unknown_interface(packets: list[Packet], every: int = 1) -> bytes:
    """Build a pcapng in which some packets belong to an interface without a description."""
    raw = bytearray(pcapng(packets))
    at = 0
    seen = 0
    while at < len(raw):
        kind, size = struct.unpack_from("<II", raw, at)
        if kind == 6:
            seen += 1
            raw[at + 8] = 3 if seen % every == 0 else 0
        at += size
    return bytes(raw)


def test_packets_of_an_unknown_pcapng_interface_are_counted(read: Read, tmp_path: Path) -> None:
    capture = read(unknown_interface(BEATS))
    assert capture.skipped == {"unknown pcapng interface": NUMBER} and all_counted(capture)
    assert summarise(capture)["packets"] == NUMBER
    shown = CliRunner().invoke(wire, [str(tmp_path / "capture.pcap")], catch_exceptions=False)
    assert shown.exit_code == 0 and shown.stdout.startswith(f"{NUMBER} packets, ")
    half = read(unknown_interface(BEATS, 2))
    assert half.skipped == {"unknown pcapng interface": NUMBER // 2} and all_counted(half)


def test_damaged_pcapng_blocks_are_counted(read: Read) -> None:
    capture = read(pcapng(BEATS, extra=block("<", 6, bytes(12)) + block("<", 3, b"")))
    assert capture.skipped == {"damaged pcapng block": 2} and all_counted(capture)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_packet_of_a_golden_capture_is_counted(read: Read, name: str) -> None:
    capture = read(golden_bytes(name))
    assert all_counted(capture) and set(capture.skipped) <= {"ARP", "ICMPv6", "IGMP"}
    assert not {"undecoded capture", "incomplete capture"} & set(capture.table("problems")["problem"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("snaplen", range(14, 140, 25))
def test_every_packet_of_a_tunnel_is_counted(read: Read, way: str, snaplen: int) -> None:
    packets = wrapped(IPV4_ONLY[:60], WAYS[way][1])
    assert all_counted(read(pcap(packets, snaplen=snaplen)))


def test_few_skipped_packets_are_not_a_problem(read: Read) -> None:
    """An unknown EtherType in a capture with Dask is only counted."""
    many = small_talk(100).packets
    strange = framed(0x9999)(many[0][1])
    capture = read([*many, (many[-1][0] + 1, strange, len(strange))])
    assert capture.skipped == {"EtherType 0x9999": 1}
    assert not {"undecoded capture", "incomplete capture"} & set(capture.table("problems")["problem"])
