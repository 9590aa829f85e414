"""One direction of a connection as a stream of bytes with holes. Reads copy nothing where possible."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from daskwire.base.arrays import U32, U64, Ints
from daskwire.decoder.file.memory import Memory

Bytes = bytes | memoryview


class ByteStream(Protocol):
    """The interface that message framing needs: plain TCP, or a decrypted or unmasked stream on top of it.

    Attributes:
        start: position of each piece, ascending.
        end: position after each piece.
        time_ns: when each piece, and everything before it, had been captured.
        opened: position 0 is the beginning of the connection.
    """

    start: Ints
    end: Ints
    time_ns: Ints
    opened: bool

    def read(self, position: int, size: int) -> Bytes | None:
        """Return ``size`` bytes, None if any of them is not in the capture."""

    def piece_at(self, position: int) -> int:
        """Return the index of the piece that contains a position, else of the next piece."""

    def heads(self, chunk: slice) -> U64:
        """Return the first two 64-bit words of some pieces as an ``(n, 2)`` array, zeros where missing."""


class Stream:
    """The stream of one flow, made of its pieces (see ``daskwire.decoder.net.tcp.Pieces``)."""

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
        self._from = self._to = self._address = 0  # the range that was read last, and its address

    def piece_at(self, position: int) -> int:
        return int(self.end.searchsorted(position, side="right"))

    def read(self, position: int, size: int) -> Bytes | None:
        """Return ``size`` bytes, None if any of them is missing (hole, snaplen, end).

        A message's header and body are usually in one piece, which is then looked up only once.
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
        heads = np.zeros((len(self.start[chunk]), 2), np.uint64)
        enough = self.captured[chunk] >= 16
        heads[enough] = self.memory.words(self.offset[chunk][enough], 2)
        return heads

    def _join(self, piece: int, position: int, size: int) -> bytes | None:
        """Read bytes that are spread over several pieces."""
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


def seen_before(start: Ints, end: Ints, positions: Ints) -> Ints:
    """Count the captured bytes of the stream below each position."""
    total = np.concatenate([[0], np.cumsum(end - start)])
    piece = np.searchsorted(end, positions, side="right")
    inside = np.clip(positions - np.append(start, np.iinfo(np.int64).max)[piece], 0, None)
    return np.asarray(total[piece] + inside, np.int64)


def arrival(stream: ByteStream, positions: Ints) -> Ints:
    """Return when the byte at each position, and everything before it, had been captured."""
    if not len(stream.end):
        return np.zeros(len(positions), np.int64)
    piece = np.minimum(np.searchsorted(stream.end, positions, side="right"), len(stream.end) - 1)
    return stream.time_ns[piece]
