"""Every file format, link type and IP version gives the same tables for the same packets."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from daskwire import Capture, WireError, open_capture

from tests.unit.daskwire.build import Packet, block, golden_bytes, packets_of, pcap, pcapng, small_talk

Read = Callable[..., Capture]
PACKETS = packets_of(golden_bytes("g3-2026.8.0"))
ETHERNET = 14


def tables(capture: Capture) -> tuple[object, ...]:
    return tuple(capture.table(name) for name in ("messages", "ops", "matrix", "flows"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    path = tmp_path_factory.mktemp("formats") / "plain.pcap"
    path.write_bytes(pcap(PACKETS))
    return tables(open_capture(path))


@pytest.mark.parametrize("nano", [False, True])
@pytest.mark.parametrize("order", "<>")
def test_pcap(read: Read, expected: object, order: str, nano: bool) -> None:
    assert tables(read(pcap(PACKETS, order, nano))) == expected


@pytest.mark.parametrize("resolution", [6, 9, 0x80 | 30])
@pytest.mark.parametrize("order", "<>")
def test_pcapng(read: Read, expected: object, order: str, resolution: int) -> None:
    assert tables(read(pcapng(PACKETS, order, resolution))) == expected


def test_pcapng_of_two_sections_in_both_byte_orders(read: Read, expected: object) -> None:
    half = len(PACKETS) // 2
    assert tables(read(pcapng(PACKETS[:half], "<") + pcapng(PACKETS[half:], ">", 6))) == expected


def test_pcapng_statistics_count_dropped_packets(read: Read) -> None:
    option = struct.pack("<HHQ", 5, 8, 7) + struct.pack("<HHQ", 7, 8, 2) + bytes(4)
    file = pcapng(PACKETS[:40]) + block("<", 5, struct.pack("<III", 0, 0, 0) + option)
    assert read(file).files[0].progress.dropped == 9


def test_pcapng_key_log_is_used(read: Read) -> None:
    keys = (Path(__file__).parents[4] / "data" / "wire" / "tls-2026.8.0.keys").read_bytes()
    secrets = block("<", 10, struct.pack("<II", 0x544C534B, len(keys)) + keys)
    file = pcapng(packets_of(golden_bytes("tls-2026.8.0")), extra=secrets)
    assert len(read(file).messages) == 122


def test_gzip_and_several_files(tmp_path: Path, expected: object) -> None:
    first, second = tmp_path / "a.pcap.gz", tmp_path / "b.pcap"
    first.write_bytes(gzip.compress(pcap(PACKETS[::2])))
    second.write_bytes(pcap(PACKETS[1::2]))
    assert tables(open_capture([first, second])) == expected
    assert tables(open_capture([second, first])) == expected


def rewrapped(change: Callable[[bytes], bytes]) -> list[Packet]:
    """Convert the IPv4 packets to another link layer."""
    remaining = [p for p in PACKETS if p[1][12:14] == b"\x08\x00"]
    return [(t, change(data), length + len(change(data)) - len(data)) for t, data, length in remaining]


LINKS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "vlan": (1, lambda d: d[:12] + b"\x81\x00\x00\x05" + d[12:]),
    "double vlan": (1, lambda d: d[:12] + b"\x88\xa8\x00\x05\x81\x00\x00\x06" + d[12:]),
    "cooked": (113, lambda d: bytes(14) + d[12:]),
    "cooked v2": (276, lambda d: d[12:14] + bytes(18) + d[14:]),
    "raw": (101, lambda d: d[14:]),
    "raw IPv4": (228, lambda d: d[14:]),
    "loopback": (0, lambda d: b"\x02\0\0\0" + d[14:]),
}


@pytest.mark.parametrize("name", LINKS)
def test_link_layers(read: Read, expected: tuple[object, ...], name: str) -> None:
    link, change = LINKS[name]
    assert tables(read(pcap(rewrapped(change), link=link))) == expected


def test_unknown_link_type_is_counted(read: Read) -> None:
    capture = read(pcap(PACKETS, link=147))
    assert len(capture.messages) == 0 and capture.skipped == {"link type 147": len(PACKETS)}


@pytest.mark.parametrize("extension", [b"", bytes([6, 0, 1, 4, 0, 0, 0, 0]), bytes([6, 1]) + bytes(14)])
def test_ipv6_with_extension_headers(read: Read, extension: bytes) -> None:
    talk = small_talk(client=("2001:db8::2", 40000), server=("2001:db8::1", 8786))
    if extension:
        talk.packets = [
            (t, d[:20] + b"\0" + d[21:54] + extension + d[54:], n + len(extension))
            for t, d, n in talk.packets
        ]
        talk.packets = [(t, d[:18] + struct.pack(">H", len(d) - 54) + d[20:], n) for t, d, n in talk.packets]
    capture = read(talk.packets)
    assert capture.table("ops")["op"] == ["heartbeat_worker"] * 5
    assert capture.connections.endpoints(int(capture.messages.flow[0]))[0] in ("2001:db8::1", "2001:db8::2")


def test_ip_options_and_length_zero(read: Read) -> None:
    """Very large GSO frames have IP length 0; their length on the wire is used."""
    plain = tables(read(small_talk().packets))[:2]
    talk = small_talk()
    zero = [(t, d[:16] + b"\0\0" + d[18:], n) for t, d, n in talk.packets]
    assert tables(read(zero))[:2] == plain
    optioned = [
        (
            t,
            d[:14]
            + b"\x46"
            + d[15:16]
            + struct.pack(">H", len(d) - 14 + 4)
            + d[18:34]
            + b"\x01\x01\x01\0"
            + d[34:],
            n + 4,
        )
        for t, d, n in talk.packets
    ]
    assert tables(read(optioned))[:2] == plain


def test_ethernet_padding_is_ignored(read: Read) -> None:
    padded = [(t, d.ljust(60, b"\xff"), max(n, 60)) for t, d, n in small_talk().packets]
    assert read(padded).table("ops") == read(small_talk().packets).table("ops")


@pytest.mark.parametrize("snaplen", [96, 256, 1024])
def test_snaplen_costs_content_but_not_framing(read: Read, snaplen: int) -> None:
    """Sizes and counts stay; truncated bodies have the kind cut."""
    whole, cut = read(pcap(PACKETS)).messages, read(pcap(PACKETS, snaplen=snaplen)).messages
    columns = zip(whole.flow, whole.position, whole.size, strict=True)
    expected = {(int(flow), int(position)): int(size) for flow, position, size in columns}
    for flow, position, size in zip(cut.flow.tolist(), cut.position.tolist(), cut.size.tolist(), strict=True):
        assert expected[flow, position] == size
    assert len(cut) >= len(whole) * {96: 0.7, 256: 0.97, 1024: 0.99}[snaplen]


def test_files_that_are_not_captures_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    for content, why in (
        (b"", "empty"),
        (b"hello world, this is text", "neither pcap nor pcapng"),
        (b"\xd4\xc3\xb2\xa1", "ends within its header"),
        (b"\x0a\x0d\x0d\x0a" + bytes(20), "without a byte-order magic"),
    ):
        path.write_bytes(content)
        with pytest.raises(WireError, match=why):
            open_capture(path)
    with pytest.raises(WireError, match="No such file"):
        open_capture(tmp_path / "absent.pcap")


def test_truncated_compressed_file_gives_its_beginning(tmp_path: Path) -> None:
    import pyarrow

    for name, packed in (
        ("a.pcap.gz", gzip.compress(pcap(PACKETS))),
        ("a.pcap.zst", pyarrow.compress(pcap(PACKETS), "zstd", asbytes=True)),
    ):
        path = tmp_path / name
        path.write_bytes(packed)
        assert open_capture(path).tally.packets == len(PACKETS)
        path.write_bytes(packed[: len(packed) * 3 // 4])
        cut = open_capture(path)
        assert 0 < cut.tally.packets < len(PACKETS) and len(cut.messages) > 10
        path.write_bytes(packed[:12])
        with pytest.raises(WireError):
            open_capture(path)


@pytest.mark.parametrize("size", [30, 60, 5000, 100_000])
def test_truncated_file_gives_its_complete_packets(read: Read, size: int) -> None:
    capture = read(pcap(PACKETS)[:size])
    number = len(packets_of(pcap(PACKETS)[:size]))
    complete = [p for p in packets_of(pcap(PACKETS)[:size]) if len(p[1]) == p[2]]
    assert capture.tally.packets == len(complete) >= number - 1
    assert "truncated" in str(capture.files[0].progress.problem)


def test_damaged_record_is_reported(read: Read) -> None:
    file = bytearray(pcap(PACKETS))
    at = len(pcap(PACKETS[:100]))
    file[at : at + 16] = b"\xff" * 16
    capture = read(bytes(file))
    assert capture.tally.packets == 100
    assert str(capture.files[0].progress.problem).startswith(f"damaged at byte {at}")
