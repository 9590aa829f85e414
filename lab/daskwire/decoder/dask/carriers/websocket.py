"""Decode WebSocket (RFC 6455): Dask sends the number of frames as a WebSocket message, then one per frame.

The frames are arranged as if they had been sent over TCP, with the header that G3 would have written, so that
all other code works unchanged. A message's size is therefore its size over TCP. Compressed WebSocket
messages, which Dask does not enable, are not supported.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from daskwire.decoder.dask.carriers.derived_stream import DerivedStream
from daskwire.decoder.net.stream import ByteStream, arrival

MAX_FRAMES = 1_000_000
MAX_HTTP = 16384
CONTINUATION, BINARY, CLOSE = 0, 2, 8


@dataclass(frozen=True)
class Fragment:
    """Position, size and mask of the payload of one WebSocket frame in the stream below."""

    position: int
    size: int
    mask: bytes


Message = list[Fragment]  # a WebSocket message


def is_upgrade(head: bytes) -> bool:
    """Return whether a stream begins with the request or the response that opens a WebSocket."""
    return b"upgrade: websocket" in head.lower() and head.startswith((b"GET ", b"HTTP/1.1 101"))


def plain_stream(below: ByteStream) -> DerivedStream | None:
    """Return the Dask stream inside a WebSocket stream, None if its opening is missing.

    It ends at the first hole: WebSocket frames have no mark that would allow resynchronisation.
    """
    begin = _after_http(below)
    if begin is None:
        return None
    pieces: list[bytes | Message] = []
    sizes: list[int] = []
    ends: list[int] = []
    for frames in _dask_messages(below, begin):
        lengths = [sum(part.size for part in frame) for frame in frames]
        header = struct.pack(
            f"<{2 + len(lengths)}Q", 8 + 8 * len(lengths) + sum(lengths), len(lengths), *lengths
        )
        pieces += [header, *frames]
        sizes += [len(header), *lengths]
        ends += [
            frames[0][0].position,
            *(frame[-1].position + max(frame[-1].size - 1, 0) for frame in frames),
        ]
    times = arrival(below, np.array(ends, np.int64)).tolist()

    def load(number: int) -> bytes:
        piece = pieces[number]
        return piece if isinstance(piece, bytes) else b"".join(_unmask(below, part) for part in piece)

    return DerivedStream(sizes, times, True, load)


def _after_http(below: ByteStream) -> int | None:
    if not below.opened or not len(below.end):
        return None
    size = min(MAX_HTTP, int(below.end[0]) - int(below.start[0]))
    head = below.read(0, size)
    end = bytes(head).find(b"\r\n\r\n") if head is not None else -1
    return end + 4 if end >= 0 else None


def _dask_messages(below: ByteStream, position: int) -> Iterator[list[Message]]:
    """Yield the frames of each Dask message (a count, then that many frames) until one is incomplete."""
    messages = _messages(below, position)
    for first in messages:
        count = b"".join(_unmask(below, part) for part in first)
        number = int.from_bytes(count, "little")
        if len(count) != 8 or not 1 <= number <= MAX_FRAMES:
            return
        frames = list(islice(messages, number))
        if len(frames) < number:
            return
        yield frames


def _messages(below: ByteStream, position: int) -> Iterator[Message]:
    """Yield binary messages in order, without control frames, until the stream ends or has a hole."""
    message: Message = []
    while (head := below.read(position, 2)) is not None:
        final, opcode, masked, size = head[0] & 0x80, head[0] & 0x0F, head[1] & 0x80, head[1] & 0x7F
        extra = {126: 2, 127: 8}.get(size, 0)
        rest = below.read(position + 2, extra + (4 if masked else 0))
        if rest is None or head[0] & 0x70:
            return
        size = int.from_bytes(rest[:extra], "big") if extra else size
        position += 2 + len(rest)
        if position + size > int(below.end[-1]):
            return
        if opcode in (CONTINUATION, BINARY):
            message.append(Fragment(position, size, bytes(rest[extra:])))
            if final:
                yield message
                message = []
        elif opcode < CLOSE:
            return
        position += size


def _unmask(below: ByteStream, part: Fragment) -> bytes:
    data = below.read(part.position, part.size) if part.size else b""
    if data is None:
        return b""
    if not part.mask:
        return bytes(data)
    repeated = np.frombuffer((part.mask * (part.size // 4 + 1))[: part.size], np.uint8)
    return (np.frombuffer(data, np.uint8) ^ repeated).tobytes()
