"""Build captures: packets, TCP connections, and files of every supported format."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import msgpack

DATA = Path(__file__).parents[2] / "data" / "wire"
GOLDEN = sorted(path.name.removesuffix(".pcap.gz") for path in DATA.glob("*.pcap.gz"))
SYN, FIN, RST, PSH, ACK = 2, 1, 4, 8, 16
Packet = tuple[int, bytes, int]  # time in ns, captured bytes, length on the wire


def golden_bytes(name: str) -> bytes:
    return gzip.decompress((DATA / f"{name}.pcap.gz").read_bytes())


def packets_of(raw: bytes) -> list[Packet]:
    """Read the packets of a little-endian microsecond pcap with an independent reader."""
    packets, at = [], 24
    while at + 16 <= len(raw):
        seconds, micros, size, length = struct.unpack_from("<4I", raw, at)
        packets.append((seconds * 10**9 + micros * 1000, raw[at + 16 : at + 16 + size], length))
        at += 16 + size
    return packets


def pcap(
    packets: list[Packet], order: str = "<", nano: bool = False, link: int = 1, snaplen: int = 262144
) -> bytes:
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    out = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, link)]
    for time_ns, data, length in packets:
        fraction = time_ns % 10**9 // (1 if nano else 1000)
        data = data[:snaplen]
        out.append(struct.pack(order + "4I", time_ns // 10**9, fraction, len(data), length) + data)
    return b"".join(out)


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def pcapng(
    packets: list[Packet], order: str = "<", resolution: int = 9, link: int = 1, extra: bytes = b""
) -> bytes:
    """Build enhanced packet blocks of one interface; ``resolution`` is the value of if_tsresol."""
    out = [block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))]
    option = struct.pack(order + "HH", 9, 1) + bytes([resolution]) + bytes(3) + bytes(4)
    out.append(block(order, 1, struct.pack(order + "HHI", link, 0, 262144) + option))
    out.append(extra)
    for time_ns, data, length in packets:
        base = 2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution
        ticks = -(-time_ns * base // 10**9)
        head = struct.pack(order + "5I", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(data), length)
        out.append(block(order, 6, head + data))
    return b"".join(out)


def packets_with_comments(path: Path) -> list[tuple[int, list[str]]]:
    """Read a little-endian pcapng with a resolution of nanoseconds: time and comments of each packet."""
    raw, at, packets = path.read_bytes(), 0, []
    while at < len(raw):
        kind, size = struct.unpack_from("<II", raw, at)
        if kind == 6:
            high, low, captured = struct.unpack_from("<3I", raw, at + 12)
            option, comments = at + 28 + captured + -captured % 4, []
            while option < at + size - 4:
                code, length = struct.unpack_from("<HH", raw, option)
                if code == 1:
                    comments.append(raw[option + 4 : option + 4 + length].decode())
                option += 4 + length + -length % 4
            packets.append((high << 32 | low, comments))
        at += size
    return packets


def tcp_packet(
    source: tuple[str, int],
    destination: tuple[str, int],
    seq: int,
    ack: int,
    flags: int,
    payload: bytes = b"",
    *,
    options: bytes = b"",
    identification: int = 1,
    window: int = 500,
) -> bytes:
    """Build an Ethernet frame with IPv4 or IPv6, depending on the addresses."""
    words = 5 + len(options) // 4
    tcp = struct.pack(
        ">HHIIHHHH",
        source[1],
        destination[1],
        seq & 0xFFFFFFFF,
        ack & 0xFFFFFFFF,
        words << 12 | flags,
        window,
        0,
        0,
    )
    body = tcp + options + payload
    a, b = ip_address(source[0]), ip_address(destination[0])
    if a.version == 6:
        head = struct.pack(">IHBB", 6 << 28, len(body), 6, 64)
        return bytes(12) + b"\x86\xdd" + head + a.packed + b.packed + body
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), identification, 0x4000, 64, 6, 0)
    return bytes(12) + b"\x08\x00" + head + a.packed + b.packed + body


def stamp(value: int, echo: int) -> bytes:
    return b"\x01\x01\x08\x0a" + struct.pack(">II", value, echo)


@dataclass
class Talk:
    """A TCP connection between a client and a server, built packet by packet."""

    client: tuple[str, int] = ("10.0.0.2", 40000)
    server: tuple[str, int] = ("10.0.0.1", 8786)
    isn: tuple[int, int] = (1000, 5000)
    step_ns: int = 100_000
    packets: list[Packet] = field(default_factory=list)
    time_ns: int = 1_700_000_000 * 10**9
    sent: list[int] = field(default_factory=lambda: [0, 0])
    identification: int = 0

    def add(self, who: int, flags: int, payload: bytes = b"", seq: int | None = None, **more: object) -> None:
        """Add a packet of the client (0) or the server (1); ``seq`` overrides the sequence number."""
        ends = (self.client, self.server) if who == 0 else (self.server, self.client)
        self.identification += 1
        start = self.isn[who] + 1 + self.sent[who] if seq is None else seq
        ack = self.isn[who ^ 1] + 1 + self.sent[who ^ 1] if flags & ACK else 0
        more = {"identification": self.identification, **more}
        data = tcp_packet(*ends, start, ack, flags, payload, **more)
        self.packets.append((self.time_ns, data, len(data)))
        self.time_ns += self.step_ns

    def open(self) -> Talk:
        self.add(0, SYN, seq=self.isn[0])
        self.add(1, SYN | ACK, seq=self.isn[1])
        self.add(0, ACK)
        return self

    def say(self, who: int, payload: bytes, mtu: int = 1448) -> Talk:
        """Add data in segments, then the other side's ACK."""
        for at in range(0, len(payload), mtu):
            part = payload[at : at + mtu]
            self.add(who, ACK | (PSH if at + mtu >= len(payload) else 0), part)
            self.sent[who] += len(part)
        self.add(who ^ 1, ACK)
        return self


def g3(message: object, *frames: bytes) -> bytes:
    """Encode a message as G3 does (and G2, if no frames follow)."""
    body = msgpack.packb(message)
    lengths = [len(body), *map(len, frames)]
    split = 8 + 8 * len(lengths) + sum(lengths[:2])
    return struct.pack(f"<{2 + len(lengths)}Q", split, len(lengths), *lengths) + body + b"".join(frames)


def g1(message: object, small: bytes = b"", *frames: bytes) -> bytes:
    """Encode a message as G1 does."""
    lengths = [len(small), len(body := msgpack.packb(message)), *map(len, frames)]
    return struct.pack(f"<{1 + len(lengths)}Q", len(lengths), *lengths) + small + body + b"".join(frames)


HELLO = {"compression": None, "python": [3, 11, 7], "pickle-protocol": 5}


def small_talk(beats: int = 5, **options: object) -> Talk:
    """Build a connection with a worker's heartbeats in G3."""
    talk = Talk(**options).open()
    talk.say(0, g3(HELLO)).say(1, g3(HELLO))
    for number in range(beats):
        talk.say(
            0,
            g3(
                {
                    "op": "heartbeat_worker",
                    "address": "tcp://10.0.0.2:3333",
                    "now": float(number),
                    "reply": True,
                }
            ),
        )
        talk.say(1, g3({"status": "OK", "time": 1.0, "heartbeat-interval": 0.5}))
    return talk
