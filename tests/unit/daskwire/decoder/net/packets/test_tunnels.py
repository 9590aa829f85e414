"""A capture of the outer network gives the tables of the inner one."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from daskwire import Capture, summarise
from daskwire.terminal.cli import wire

from tests.unit.daskwire.build import Packet, golden_bytes, packets_of, pcap, small_talk
from tests.unit.daskwire.decoder.file.test_formats import tables

Read = Callable[..., Capture]
PACKETS = packets_of(golden_bytes("g3-2026.8.0"))
IPV4_ONLY = [p for p in PACKETS if p[1][12:14] == b"\x08\x00"]


def ipv4(protocol: int, body: bytes) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 7, 0x4000, 64, protocol, 0)
    return bytes(12) + b"\x08\x00" + head + bytes([172, 16, 0, 1, 172, 16, 0, 2]) + body


def ipv6(protocol: int, body: bytes) -> bytes:
    return bytes(12) + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, len(body), protocol, 64) + bytes(32) + body


def udp(port: int, body: bytes) -> bytes:
    return struct.pack(">HHHH", 54321, port, 8 + len(body), 0) + body


def vxlan(port: int, outer: Callable[[int, bytes], bytes] = ipv4) -> Callable[[bytes], bytes]:
    return lambda frame: outer(17, udp(port, b"\x08\0\0\0\0\x01\x02\0" + frame))


def gre(flags: int, kind: int, more: bytes = b"", skip: int = 0) -> Callable[[bytes], bytes]:
    return lambda frame: ipv4(47, struct.pack(">HH", flags, kind) + more + frame[skip:])


WAYS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "vxlan": ("VXLAN", vxlan(4789)),
    "vxlan on Linux' old port": ("VXLAN", vxlan(8472)),
    "vxlan over IPv6": ("VXLAN", vxlan(4789, ipv6)),
    "vxlan in vxlan": ("VXLAN", lambda frame: vxlan(4789)(vxlan(8472)(frame))),
    "vxlan with a tag inside": ("VXLAN", lambda f: vxlan(4789)(f[:12] + b"\x81\0\0\x05" + f[12:])),
    "geneve": ("Geneve", lambda f: ipv4(17, udp(6081, b"\0\0\x65\x58\0\0\x01\0" + f))),
    "geneve with options": (
        "Geneve", lambda f: ipv4(17, udp(6081, b"\x02\0\x65\x58\0\0\x01\0" + bytes(8) + f))
    ),
    "IP in IP": ("IP in IP", lambda frame: ipv4(4, frame[14:])),
    "IP in IPv6": ("IP in IP", lambda frame: ipv6(4, frame[14:])),
    "gre": ("GRE", gre(0, 0x0800, skip=14)),
    "gre with all options": ("GRE", gre(0xB000, 0x0800, bytes(12), skip=14)),
    "nvgre": ("GRE", gre(0x2000, 0x6558, bytes(4))),
    "erspan I": ("ERSPAN", gre(0, 0x88BE)),
    "erspan II": ("ERSPAN", gre(0x1000, 0x88BE, bytes(4) + bytes(8))),
    "erspan III": ("ERSPAN", gre(0x1000, 0x22EB, bytes(4) + bytes(12))),
    "erspan III with a sub-header": ("ERSPAN", gre(0x1000, 0x22EB, bytes(4) + bytes(11) + b"\1" + bytes(8))),
}  # fmt: skip


def wrapped(packets: list[Packet], wrap: Callable[[bytes], bytes]) -> list[Packet]:
    return [(time, wrap(data), length + len(wrap(data)) - len(data)) for time, data, length in packets]


@pytest.mark.parametrize("way", WAYS)
def test_inner_packets_are_decoded(read: Read, way: str) -> None:
    name, wrap = WAYS[way]
    capture = read(wrapped(IPV4_ONLY, wrap))
    assert tables(capture) == tables(read(IPV4_ONLY))
    assert capture.tally.tunnels[name] == len(IPV4_ONLY) * (2 if way == "vxlan in vxlan" else 1)
    assert not +capture.tally.opaque and len(capture.messages) == 133


def test_inner_ipv6_is_decoded(read: Read) -> None:
    talk = small_talk(client=("2001:db8::2", 40000), server=("2001:db8::1", 8786))
    for way in ("vxlan", "nvgre"):
        assert read(wrapped(talk.packets, WAYS[way][1])).table("ops")["op"] == ["heartbeat_worker"] * 5


def test_same_packets_inside_and_outside_a_tunnel_are_copies(read: Read) -> None:
    """A capture on the interfaces of a node and of its pods contains both."""
    copies = sorted(IPV4_ONLY + wrapped(IPV4_ONLY, vxlan(4789)), key=lambda p: p[0])
    capture = read(copies)
    assert capture.tally.repeated == len(IPV4_ONLY)
    assert capture.table("flows") == read(IPV4_ONLY).table("flows")


@pytest.mark.parametrize("way", WAYS)
def test_truncated_tunnels_give_no_false_messages(read: Read, way: str) -> None:
    packets = wrapped(IPV4_ONLY, WAYS[way][1])
    for snaplen in range(14, 140, 7):
        capture = read(pcap(packets, snaplen=snaplen))
        assert len(capture.messages) <= 133


@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (lambda frame: ipv4(50, frame), "IPsec (ESP)"),
        (lambda frame: ipv4(17, udp(51820, frame)), "WireGuard"),
        (lambda frame: ipv4(17, udp(9999, frame)), "UDP port 9999"),
        (lambda frame: ipv4(17, udp(4789, bytes(8) + frame)), "UDP port 4789"),  # without VXLAN's flag
    ],
)
def test_possible_tunnel_is_named(tmp_path, read: Read, wrap, name: str) -> None:  # type: ignore[no-untyped-def]
    packets = wrapped(IPV4_ONLY, wrap)
    assert summarise(read(packets))["likely_tunnels"] == {name: len(packets)}
    output = CliRunner().invoke(wire, [str(tmp_path / "capture.pcap")]).stdout
    assert f"{len(packets)} packets were not decoded: {name}, which may be a tunnel" in output


def test_udp_next_to_dask_is_not_a_tunnel(read: Read) -> None:
    some = [(time, ipv4(17, udp(53, bytes(30))), 72) for time, _, _ in IPV4_ONLY]
    assert summarise(read(sorted(IPV4_ONLY + some, key=lambda p: p[0])))["likely_tunnels"] == {}


def test_tunnel_on_a_given_port_is_decoded(read: Read) -> None:
    packets = wrapped(IPV4_ONLY, vxlan(4790))
    assert len(read(packets).messages) == 0
    capture = read(packets, tunnel_ports={4790: "vxlan"})
    assert tables(capture) == tables(read(IPV4_ONLY))


def test_tunnel_option(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(pcap(wrapped(IPV4_ONLY, vxlan(4790))))
    result = CliRunner().invoke(wire, [str(path), "--tunnel", "udp:4790=vxlan"])
    assert f"{len(IPV4_ONLY)} packets were decoded from VXLAN" in result.stdout
    for wrong in ("4790", "udp:4790", "tcp:4790=vxlan", "udp:4790=gre", "udp:99999=vxlan"):
        result = CliRunner().invoke(wire, [str(path), "--tunnel", wrong])
        assert result.exit_code == 2 and f"--tunnel {wrong}: expected udp:PORT=KIND" in result.stderr


def test_dns_is_not_a_tunnel(read: Read) -> None:
    packets = wrapped(IPV4_ONLY, lambda frame: ipv4(17, udp(53, frame)))
    assert summarise(read(packets))["likely_tunnels"] == {}
