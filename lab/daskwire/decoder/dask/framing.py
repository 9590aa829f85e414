"""Walk a byte stream from message to message: the three generations of Dask's framing."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import U32, U64, Ints
from daskwire.decoder.dask.content import Contents, UndecodableError, lz4_block, unpack
from daskwire.decoder.net.tcp import Bytes, ByteStream, Stream

# Find where messages begin and end: the three generations of Dask's framing.
#
# All integers are 64-bit, little endian::
#
#     G1  <= 2021.2         n, n lengths, n frames; frame 0: small header (often empty), frame 1: the
# message
#     G2  2021.3..2023.10   rest, n, n lengths, n frames; frame 0: the message; rest: bytes after this word
#     G3  since 2023.11     split, n, n lengths, n frames; split: bytes of the reader's first read, which
# ends
#                           at a frame boundary
#
# G2's `rest` is also a frame boundary, so one parser serves both. They differ as soon as a message is
# written
# in parts. The first word validates the rest of the header; this makes resynchronisation certain instead of
# likely. G1 has no such check: there, the message itself must decode to the last byte.

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


# Walk a byte stream from message to message, and resynchronise after a hole.
#
# The walk reads headers and message bodies but never payload: its cost is per message, not per byte. Most
# of
# Dask's control traffic has exactly one small message per segment. The headers of all such segments are
# checked
# together by NumPy; only the bodies are decoded one by one.

EVERYTHING = 1 << 62
LOOK_AHEAD = 4096  # pieces that are searched together for the next message after a hole
SIMPLE_HEADER = 24  # three words: G1 with an empty small header, G2/G3 with one frame


@dataclass
class Framed:
    """The messages of one flow.

    Attributes:
        generation: the framing of this flow, None if unknown.
        position: stream position where the walk continues.
        unframed: captured bytes that could not be assigned to a message.
        resyncs: how often the framing was lost and recovered.
        blocks: arrays ``(n, 5)``: position, size, frames, body_at (relative to position), body_size.
        pending: rows that are not yet in a block.
        contents: what the messages contain.
    """

    generation: Generation | None = None
    position: int = 0
    unframed: int = 0
    resyncs: int = 0
    blocks: list[Ints] = field(default_factory=list)
    pending: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    contents: Contents = field(default_factory=Contents)

    def flush(self) -> None:
        """Move the pending rows to a block."""
        if self.pending:
            self.blocks.append(np.array(self.pending, np.int64).reshape(-1, 5))
            self.pending = []

    def table(self) -> Ints:
        """Return all rows so far, ``(n, 5)``."""
        self.flush()
        return np.concatenate(self.blocks) if self.blocks else np.zeros((0, 5), np.int64)


def simple_messages(heads: U64, length: U32) -> npt.NDArray[np.int8]:
    """Classify pieces that are exactly one simple message: 1 for G1, 2 for G2/G3, else 0.

    Args:
        heads: the first three words of each piece, ``(n, 3)``.
        length: size of each piece, bytes.
    """
    size = length.astype(np.uint64)
    g1 = (heads[:, 0] == 2) & (heads[:, 1] == 0) & (heads[:, 2] + np.uint64(24) == size)
    g23 = (heads[:, 1] == 1) & (heads[:, 0] + np.uint64(8) == size) & (heads[:, 2] + np.uint64(24) == size)
    return np.asarray(g1 + 2 * g23, np.int8)


def split_messages(
    stream: ByteStream, framed: Framed, simple: npt.NDArray[np.int8] | None, settled: int = EVERYTHING
) -> None:
    """Append the messages from ``framed.position`` on.

    Args:
        stream: the bytes of one flow.
        framed: receives the messages. Without a generation, the first message is searched (for a capture
            that began mid-stream).
        simple: class of each piece, see ``simple_messages``.
        settled: stream position below which no more bytes will arrive: what is missing there is lost.
    """
    if framed.generation is None and not _resynchronise(stream, framed, -1, settled):
        return
    last = int(stream.end[-1]) if len(stream.end) else 0
    runs = None
    if simple is not None and isinstance(stream, Stream):
        runs = _Runs(stream, simple, 1 if framed.generation is Generation.G1 else 2)
    while framed.generation is not None and framed.position < last:
        if runs is not None and runs.take(framed):
            continue
        if not _take_one(stream, framed, settled):
            return


class _Runs:
    """Runs of consecutive pieces of a stream that are one simple message each.

    Most runs are short, so what NumPy computes, it computes for all of them at once.
    """

    def __init__(self, stream: Stream, simple: npt.NDArray[np.int8], form: int) -> None:
        pieces = np.flatnonzero(simple == form)
        start, end, number = stream.start[pieces], stream.end[pieces], len(pieces)
        self._rows = np.empty((number, 5), np.int64)
        self._rows[:, 0], self._rows[:, 1] = start, end - start
        self._rows[:, 2], self._rows[:, 3] = 3 - form, SIMPLE_HEADER
        self._rows[:, 4] = end - start - SIMPLE_HEADER
        breaks = np.flatnonzero(start[1:] != end[:-1]) + 1
        stops = np.append(breaks, number)
        self._stop = stops[np.searchsorted(breaks, np.arange(number), side="right")].tolist()
        self._start, self._end = start.tolist(), end.tolist()
        self._address, self._size = (
            (stream.offset[pieces] + SIMPLE_HEADER).tolist(),
            self._rows[:, 4].tolist(),
        )
        self._read = stream.memory.read
        self._next = 0

    def take(self, framed: Framed) -> bool:
        """Take the run that begins at the current position. Return False if there is none."""
        index, start, position = self._next, self._start, framed.position
        while index < len(start) and start[index] < position:
            index += 1
        self._next = index
        if index == len(start) or start[index] != position:
            return False
        stop = self._next = self._stop[index]
        framed.flush()
        framed.blocks.append(self._rows[index:stop])
        add, read = framed.contents.add, self._read
        for address, size in zip(self._address[index:stop], self._size[index:stop], strict=True):
            add(read(address, size))
        framed.position = self._end[stop - 1]
        return True


def _take_one(stream: ByteStream, framed: Framed, settled: int) -> bool:
    """Take one message, or resynchronise. Return False when the walk cannot continue (yet)."""
    position, generation = framed.position, framed.generation or Generation.G23
    try:
        header = read_header(stream, position, generation)
    except NotAHeaderError:
        return _resynchronise(stream, framed, position, settled)
    if header is None:
        return position < settled and _resynchronise(stream, framed, position, settled)
    end = position + header.size
    if settled < end > int(stream.end[-1]):
        return False
    if header.split:
        framed.generation = Generation.G3
    framed.pending.append((position, header.size, len(header.lengths), header.body_at, header.body_size))
    body = stream.read(position + header.body_at, header.body_size)
    if body is None:
        framed.contents.add_missing()
    elif generation is Generation.G1 and header.body_at > 8 + 8 * len(header.lengths):
        _add_compressed(stream, framed, position, header.lengths, body)
    else:
        framed.contents.add(body)
    framed.position = end
    return True


def _add_compressed(
    stream: ByteStream, framed: Framed, position: int, lengths: tuple[int, ...], body: bytes | memoryview
) -> None:
    try:
        framed.contents.add(decompress(body, stream.read(position + 8 + 8 * len(lengths), lengths[0])))
    except UndecodableError:
        framed.contents.add(b"")


def _resynchronise(stream: ByteStream, framed: Framed, position: int, settled: int) -> bool:
    """Continue at the next segment that begins with a message. Return False when there is none."""
    first = stream.piece_at(position)
    for begin in range(first, len(stream.start), LOOK_AHEAD):
        for piece in _plausible(stream, begin, position):
            start = int(stream.start[piece])
            generation = recognise(stream, start)
            if generation is not None and _compatible(generation, framed.generation):
                framed.resyncs += position >= 0
                framed.unframed += _captured_between(stream, max(position, 0), start)
                framed.position = start
                framed.generation = framed.generation or generation
                return True
    if settled == EVERYTHING and len(stream.end):
        framed.unframed += _captured_between(stream, max(position, 0), int(stream.end[-1]))
        framed.position = int(stream.end[-1])
    return False


def _plausible(stream: ByteStream, begin: int, position: int) -> list[int]:
    """Return the pieces of one chunk whose first two words could be a header."""
    chunk = slice(begin, begin + LOOK_AHEAD)
    heads = stream.heads(chunk)
    split, count = heads[:, 0], heads[:, 1]
    g23 = (count >= 1) & (count <= 1_000_000) & (split >= 8 + 8 * count) & (split < 1 << 40)
    g1 = (split >= 2) & (split <= 1_000_000) & (count < 1 << 20)
    pieces: list[int] = (np.flatnonzero((stream.start[chunk] > position) & (g23 | g1)) + begin).tolist()
    return pieces


def _compatible(generation: Generation, expected: Generation | None) -> bool:
    return expected is None or (generation is Generation.G1) == (expected is Generation.G1)


def _captured_between(stream: ByteStream, begin: int, end: int) -> int:
    return int(np.clip(np.minimum(stream.end, end) - np.maximum(stream.start, begin), 0, None).sum())
