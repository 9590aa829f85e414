"""Find where messages begin and end: the three generations of Dask's framing.

All integers are 64-bit, little endian::

    G1  <= 2021.2         n, n lengths, n frames; frame 0: small header (often empty), frame 1: the message
    G2  2021.3..2023.10   rest, n, n lengths, n frames; frame 0: the message; rest: bytes after this word
    G3  since 2023.11     split, n, n lengths, n frames; split: bytes of the reader's first read, which ends
                          at a frame boundary

G2's ``rest`` is also a frame boundary, so one parser serves both. They differ as soon as a message is written
in parts. The first word validates the rest of the header; this makes resynchronisation certain instead of
likely. G1 has no such check: there, the message itself must decode to the last byte.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Any, NamedTuple

from daskwire.decoder.dask.framing.lz4 import lz4_block
from daskwire.decoder.dask.framing.messagepack import UndecodableError, unpack
from daskwire.decoder.net.stream import Bytes, ByteStream

MAX_FRAMES = 1_000_000
MAX_BYTES = 1 << 40
_unpack_pair = struct.Struct("<2Q").unpack_from
_unpack_word = struct.Struct("<Q").unpack_from


class Generation(Enum):
    """The framing of a connection. G23: no message yet distinguishes G2 from G3."""

    G1 = "G1"
    G23 = "G2/G3"
    G2 = "G2"
    G3 = "G3"


def generation_of(versions: set[str]) -> Generation:
    """Return the generation that all these versions of distributed use, G23 if they differ."""
    generations = set()
    for version in versions:
        parts = [int(p) if p.isdigit() else 0 for p in version.split(".")[:2]]
        generations.add(
            Generation.G1 if parts < [2021, 3] else Generation.G2 if parts < [2023, 11] else Generation.G3
        )
    return generations.pop() if len(generations) == 1 else Generation.G23


class Header(NamedTuple):
    """The header of a message.

    Attributes:
        size: size of the whole message, bytes.
        lengths: sizes of its frames, bytes.
        body_at: offset of the frame with the message proper, relative to the header.
        body_size: size of that frame, bytes.
        split: the message was written in parts, which only G3 does.
    """

    size: int
    lengths: tuple[int, ...]
    body_at: int
    body_size: int
    split: bool = False


class NotAHeaderError(ValueError):
    """The bytes are in the capture, but they are not a header."""


def read_header(stream: ByteStream, position: int, generation: Generation) -> Header | None:
    """Read the header at a position; return None if it is not completely in the capture.

    Raises:
        NotAHeaderError: the bytes are not a header.
    """
    return _read_g1(stream, position) if generation is Generation.G1 else _read_g23(stream, position)


def _lengths(stream: ByteStream, position: int, count: int) -> tuple[int, ...] | None:
    if not 1 <= count <= MAX_FRAMES:
        raise NotAHeaderError(f"{count} frames")
    table = stream.read(position, 8 * count)
    if table is None:
        return None
    lengths: tuple[int, ...] = struct.unpack(f"<{count}Q", table)
    if sum(lengths) > MAX_BYTES:
        raise NotAHeaderError("implausible frame lengths")
    return lengths


def _read_g23(stream: ByteStream, position: int) -> Header | None:
    head = stream.read(position, 16)
    if head is None:
        return None
    split, count = _unpack_pair(head)
    lengths = _lengths(stream, position + 16, count)
    if lengths is None:
        return None
    boundary = 8 + 8 * count
    rest = boundary + sum(lengths)
    if split != rest:
        for length in lengths:
            boundary += length
            if boundary >= split:
                break
        if boundary != split:
            raise NotAHeaderError("the first word is not a frame boundary")
    at = 16 + 8 * count
    return Header(8 + rest, lengths, at, lengths[0], split != rest)


def _read_g1(stream: ByteStream, position: int) -> Header | None:
    head = stream.read(position, 8)
    if head is None:
        return None
    count = _unpack_word(head)[0]
    if count < 2:
        raise NotAHeaderError(f"{count} frames")
    lengths = _lengths(stream, position + 8, count)
    if lengths is None:
        return None
    at = 8 + 8 * count
    return Header(at + sum(lengths), lengths, at + lengths[0], lengths[1])


def recognise(stream: ByteStream, position: int) -> Generation | None:
    """Return the generation of the message at a position if its header and body prove it, else None."""
    for generation in (Generation.G23, Generation.G1):
        try:
            header = read_header(stream, position, generation)
            if header is not None and _convincing(stream, position, header, generation):
                return Generation.G3 if header.split else generation
        except (NotAHeaderError, UndecodableError):
            continue
    return None


def _convincing(stream: ByteStream, position: int, header: Header, generation: Generation) -> bool:
    body = stream.read(position + header.body_at, header.body_size)
    if body is None:  # truncated by the snaplen: the header of G2/G3 validates itself
        return generation is Generation.G23
    if generation is Generation.G1:
        small = stream.read(position + 8 + 8 * len(header.lengths), header.lengths[0])
        body = decompress(body, small)
    return is_message(unpack(body))


def is_message(content: Any) -> bool:
    """Return whether decoded content is what Dask sends: a request or reply, a batch, or a short text."""
    if isinstance(content, dict):
        return all(isinstance(key, str | int | tuple) for key in content)
    if isinstance(content, tuple):
        return all(isinstance(item, dict) and "op" in item for item in content) and len(content) > 0
    return isinstance(content, str) and content.isascii() and 0 < len(content) < 64


def decompress(body: Bytes, small: Bytes | None) -> Bytes:
    """Decompress the body of a G1 message as its small header says.

    Raises:
        UndecodableError: unknown compression, or damaged data.
    """
    if not small:
        return body
    header = unpack(small)
    kind = header.get("compression") if isinstance(header, dict) else None
    if not kind:
        return body
    if kind != "lz4":
        raise UndecodableError(f"message compressed with {kind}")
    return lz4_block(bytes(body))
