"""Walk a byte stream from message to message, and resynchronise after a hole.

The walk reads headers and message bodies but never payload: its cost is per message, not per byte. Most of
Dask's control traffic has exactly one small message per segment. The headers of all such segments are checked
together by NumPy; only the bodies are decoded one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import U32, U64, Ints
from daskwire.decoder.dask.framing.content import Contents
from daskwire.decoder.dask.framing.headers import (
    Generation,
    NotAHeaderError,
    decompress,
    read_header,
    recognise,
)
from daskwire.decoder.dask.framing.messagepack import UndecodableError
from daskwire.decoder.net.stream import ByteStream, Stream

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
