"""Write pcapng files: interfaces, packets with comments, TLS key logs. ``pcapng`` reads them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import IO

from daskwire.decoder.file.pcapng import (
    ENHANCED,
    IF_TSRESOL,
    INTERFACE,
    ORDER_MAGIC,
    SECRETS,
    SECTION,
    TLS_KEY_LOG,
)

COMMENT, IF_NAME = 1, 2  # option codes
NANOSECONDS = 9  # decimal exponent of the clock resolution
LONGEST = 65_000  # bytes of an option; its length has 16 bits


class PcapngWriter:
    """Writes one section in little-endian byte order. Times have a resolution of nanoseconds."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._interfaces = 0
        self._block(SECTION, struct.pack("<IHHq", ORDER_MAGIC, 1, 0, -1))

    def key_log(self, content: bytes) -> None:
        """Write a TLS key log, with which Wireshark decrypts the packets after it."""
        self._block(SECRETS, struct.pack("<II", TLS_KEY_LOG, len(content)) + _padded(content))

    def interface(self, link: int, name: str) -> int:
        """Describe an interface, and return its number.

        Args:
            link: pcap's number of the link type.
            name: shown by Wireshark.
        """
        options = _option(IF_NAME, name.encode()[:LONGEST]) + _option(IF_TSRESOL, bytes([NANOSECONDS]))
        self._block(INTERFACE, struct.pack("<HHI", link, 0, 0) + options + _option(0, b""))
        self._interfaces += 1
        return self._interfaces - 1

    def packet(
        self,
        interface: int,
        time_ns: int,
        data: bytes | memoryview,
        length: int,
        comments: Iterable[str],
        stream: IO[bytes] | None = None,
    ) -> None:
        """Write a packet.

        Args:
            interface: its number, see ``interface``.
            time_ns: nanoseconds since 1970.
            data: the captured bytes.
            length: bytes on the wire.
            comments: each becomes a comment of the packet.
            stream: where to write it, None for the stream of the interfaces.
        """
        options = b"".join(_option(COMMENT, text.encode()[:LONGEST]) for text in comments)
        head = struct.pack("<5I", interface, time_ns >> 32, time_ns & 0xFFFFFFFF, len(data), length)
        body = head + _padded(bytes(data)) + options + (_option(0, b"") if options else b"")
        self._block(ENHANCED, body, stream)

    def _block(self, kind: int, body: bytes, stream: IO[bytes] | None = None) -> None:
        total = len(body) + 12
        (stream or self._stream).write(struct.pack("<II", kind, total) + body + struct.pack("<I", total))


def _padded(content: bytes) -> bytes:
    """Fill up to a multiple of four bytes."""
    return content + bytes(-len(content) % 4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)
