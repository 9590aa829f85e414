"""One direction of a connection as a stream of bytes with holes, read without copying where it can be."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from daskwire.arrays import U32, U64, Ints
from daskwire.file.memory import Memory

Bytes = bytes | memoryview


class ByteStream(Protocol):
    """What the framing needs: plain TCP, and the decrypted or unmasked streams that are laid over it."""

    start: Ints  # position of each piece, ascending
    end: Ints
    time_ns: Ints  # when each piece, and all before it, had passed
    opened: bool  # position 0 is the true beginning

    def read(self, position: int, size: int) -> Bytes | None:
        """``size`` bytes, or None when any of them is not in the capture."""

    def piece_at(self, position: int) -> int:
        """Index of the piece that holds a position; when none does, of the next one."""

    def heads(self, chunk: slice) -> U64:
        """The first two 64-bit words of some pieces, an ``(n, 2)`` array; zeros where they are not there."""


class Stream:
    """The pieces of one flow (see ``daskwire.net.tcp.Pieces``)."""

    def __init__(
        self,
        memory: Memory,
        start: Ints,
        length: U32,
        captured: U32,
        offset: Ints,
        time_ns: Ints,
        opened: bool,
    ) -> None:
        self.start, self.end = start, start + length
        self.captured, self.offset = captured, offset
        self.time_ns = np.maximum.accumulate(time_ns)
        self.opened = opened
        self.memory = memory
        self._from = self._to = self._address = 0  # the captured bytes that were read of last, and where

    def piece_at(self, position: int) -> int:
        """Index of the piece that holds a position; when none does, of the next one."""
        return int(self.end.searchsorted(position, side="right"))

    def read(self, position: int, size: int) -> Bytes | None:
        """``size`` bytes, or None when any of them is not in the capture (gap, snaplen, end).

        A message's header and body are mostly in one piece, which is looked up once.
        """
        if self._from <= position < self._to and position + size <= self._to:
            return self.memory.read(self._address + position - self._from, size)
        piece = self.piece_at(position)
        if piece == len(self.end):
            return None
        begin, address = int(self.start[piece]), int(self.offset[piece])
        end = begin + int(self.captured[piece])
        if not begin <= position <= end:
            return None
        self._from, self._to, self._address = begin, end, address
        if position + size <= end:
            return self.memory.read(address + position - begin, size)
        return self._join(piece, position, size)

    def heads(self, chunk: slice) -> U64:
        """The first two 64-bit words of some pieces, an ``(n, 2)`` array; zeros where they are not there."""
        heads = np.zeros((len(self.start[chunk]), 2), np.uint64)
        enough = self.captured[chunk] >= 16
        heads[enough] = self.memory.words(self.offset[chunk][enough], 2)
        return heads

    def _join(self, piece: int, position: int, size: int) -> bytes | None:
        """Bytes that lie in several pieces."""
        parts = []
        while size > 0:
            if piece == len(self.end) or int(self.start[piece]) > position:
                return None
            skip = position - int(self.start[piece])
            take = min(size, int(self.captured[piece]) - skip)
            if take <= 0:
                return None
            parts.append(bytes(self.memory.read(int(self.offset[piece]) + skip, take)))
            if take < size and position + take != int(self.end[piece]):
                return None
            position, size, piece = position + take, size - take, piece + 1
        return b"".join(parts)


def holes(start: Ints, end: Ints, opened: bool) -> tuple[Ints, Ints]:
    """Positions and sizes of the bytes that are missing between the pieces (and before the first)."""
    before = np.concatenate([[0 if opened else start[0]], end[:-1]]) if len(start) else start
    size = start - before
    return before[size > 0], size[size > 0]


def seen_before(start: Ints, end: Ints, positions: Ints) -> Ints:
    """How many bytes of the stream were seen below each position."""
    total = np.concatenate([[0], np.cumsum(end - start)])
    piece = np.searchsorted(end, positions, side="right")
    inside = np.clip(positions - np.append(start, np.iinfo(np.int64).max)[piece], 0, None)
    return np.asarray(total[piece] + inside, np.int64)


def arrival(stream: ByteStream, positions: Ints) -> Ints:
    """When the byte at each position, and all before it, had passed."""
    if not len(stream.end):
        return np.zeros(len(positions), np.int64)
    piece = np.minimum(np.searchsorted(stream.end, positions, side="right"), len(stream.end) - 1)
    return stream.time_ns[piece]
