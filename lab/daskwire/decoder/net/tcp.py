"""Reassemble TCP streams, and read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import U32, U64, Columns, Flags, Ints
from daskwire.decoder.file.source import Memory
from daskwire.decoder.net.segments import PSH, SYN, Segments, by_flow

# Reassemble TCP streams: find where in the capture file the stream bytes of each flow are.
#
# Many flows are processed together. Each flow has a band of the 64-bit number line, so that one running
# maximum
# or one sort over all segments never mixes flows. Stream position 0 is the first byte after the SYN, or the
# first captured byte if the SYN is missing.

BAND_BITS = 42  # a band is 4 TiB wide; positions are limited to +-1 TiB, far beyond any real stream
HALF_BAND = 1 << (BAND_BITS - 1)
GROUP_SEGMENTS = 1 << 18  # segments per group: the temporary arrays stay small and their memory is reused
PIECE = ("i8", "u4", "u4", "i8", "i8", "?")  # the columns of Pieces, from ``start`` on


@dataclass(frozen=True)
class Pieces:
    """The non-overlapping pieces of all streams, ordered by flow and position.

    Per flow with payload:

    Attributes:
        flow: flow number.
        begin: index of the flow's first piece; one extra entry at the end.
        opened: the flow's SYN was captured.
        zero: sequence number of stream position 0.
        start: (per piece) stream position of the piece.
        length: (per piece) stream bytes that it covers.
        captured: (per piece) how many of these are in the capture, at address ``offset``.
        offset: (per piece) address of its first byte.
        row: (per piece) segment that contained it.
        whole: (per piece) a whole segment with PSH, so it may be exactly one message.
    """

    flow: npt.NDArray[np.int32]
    begin: Ints
    opened: Flags
    zero: U32
    start: Ints
    length: U32
    captured: U32
    offset: Ints
    row: Ints
    whole: Flags


@dataclass(frozen=True)
class Disorder:
    """Segments that arrived out of sequence.

    Attributes:
        resent: rows of the segments without new bytes.
        resent_start: their stream positions.
        late: rows of the segments that were captured after later ones.
    """

    resent: Ints
    resent_start: Ints
    late: Ints


def reassemble(segments: Segments, origin: dict[int, int] | None = None) -> tuple[Pieces, Disorder]:
    """Put the payload of all flows in stream order.

    Args:
        segments: all segments.
        origin: sequence number of position 0, for flows that continue from an earlier call.
    """
    row = np.flatnonzero(segments.length)
    row = row[by_flow(segments.flow[row])]
    flow = segments.flow[row]
    first = np.flatnonzero(np.diff(flow, prepend=np.int32(-1)))
    present = flow[first]
    zero, opened = _origins(segments, present, segments.seq[row[first]], origin or {})
    counts, columns, resent, late = (Columns(types) for types in (("i8",), PIECE, ("i8", "i8"), ("i8",)))
    for rows, flows in _groups(first, len(row)):
        parts = _group(segments, row[rows], first[flows] - rows.start, zero[flows])
        for table, arrays in zip((counts, columns, resent, late), parts, strict=True):
            table.add(arrays, rows.stop / len(row))
    begin = np.append(0, np.cumsum(*counts.arrays()))
    return Pieces(present, begin, opened, zero, *columns.arrays()), Disorder(*resent.arrays(), *late.arrays())


def _groups(first: Ints, number: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of the rows and of the flows: whole flows, up to about GROUP_SEGMENTS segments."""
    boundary = np.append(first, number)
    begin = 0
    while begin < len(first):
        end = int(np.searchsorted(boundary, boundary[begin] + GROUP_SEGMENTS, side="right")) - 1
        end = max(end, begin + 1)
        yield slice(int(boundary[begin]), int(boundary[end])), slice(begin, end)
        begin = end


def _group(segments: Segments, row: Ints, first: Ints, zero: U32) -> tuple[Sequence[npt.NDArray[Any]], ...]:
    """Reassemble some flows.

    Returns:
        The number of pieces of each flow, the columns of ``Pieces`` from ``start`` on, and the columns of
        ``Disorder`` in two parts.
    """
    sizes = np.diff(np.append(first, len(row)))
    row, start, length = row.copy(), _unwrap(segments.seq[row], first, zero), segments.length[row]
    key = start + np.repeat(np.arange(len(first)) << BAND_BITS, sizes) + HALF_BAND
    end = key + length
    late, unsorted = _unsorted(key, end)
    order, overlap = _resolve(key[unsorted], end[unsorted])
    source = unsorted[order]
    has_new = overlap < length[source]
    resent = np.sort(source[~has_new])
    overtaken = np.zeros(len(row), np.bool_)
    overtaken[late] = True
    overtaken[resent] = False
    disorder = (row[resent], start[resent]), (row[overtaken],)
    row[unsorted] = row[source]
    start[unsorted], length[unsorted] = start[source] + overlap, length[source] - overlap
    captured, offset = segments.captured[row], segments.offset[row]
    whole = (captured == segments.length[row]) & (segments.flags[row] & PSH != 0)
    captured[unsorted] = np.maximum(captured[unsorted] - overlap, 0)
    offset[unsorted] += overlap
    whole[unsorted] &= overlap == 0
    columns: list[npt.NDArray[Any]] = [start, length, captured, offset, row, whole]
    if len(resent):
        keep = np.ones(len(row), bool)
        keep[unsorted] = has_new
        sizes, columns = np.add.reduceat(keep, first, dtype=np.int64), [c[keep] for c in columns]
    return (sizes,), columns, *disorder


def _origins(
    segments: Segments, present: npt.NDArray[np.int32], first_seq: U32, origin: dict[int, int]
) -> tuple[U32, Flags]:
    """Return the sequence number of position 0 of each present flow, and whether its SYN was captured."""
    # NumPy assigns in order, so the last of several SYNs would count. In reverse, the first one does.
    syn = np.flatnonzero(segments.flags & SYN)[::-1]
    last = int(max(present.max(initial=0), segments.flow[syn].max(initial=0)))
    number, opened = np.zeros(last + 1, np.uint32), np.zeros(last + 1, bool)
    number[segments.flow[syn]] = segments.seq[syn] + np.uint32(1)
    opened[segments.flow[syn]] = True
    zero = np.where(opened[present], number[present], first_seq).astype(np.uint32)
    for index, flow in enumerate(present.tolist()) if origin else ():
        if flow in origin:
            zero[index] = origin[flow]
    return zero, opened[present]


def _unwrap(seq: U32, first: Ints, zero: U32) -> Ints:
    """Convert 32-bit sequence numbers to 64-bit stream positions by summing steps, each below 2**31."""
    # Seen as a signed number, a difference modulo 2**32 is the shorter way round: back for a retransmission,
    # forward across the wrap after 4 GiB. Their sum therefore never wraps, however long the stream is.
    step = np.diff(seq, prepend=seq[:1]).view(np.int32).astype(np.int64)
    begin = (seq[first] - zero).view(np.int32).astype(np.int64)
    step[first] = 0
    end = begin + np.add.reduceat(step, first)
    step[first] = begin - np.append(0, end[:-1])  # from the end of the previous flow
    return np.clip(np.cumsum(step), -HALF_BAND // 2, HALF_BAND // 2)


def _unsorted(key: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Find the segments that are not in their place.

    Returns:
        Indices of the segments that begin before the end of an earlier captured one, and of all segments that
        must be moved or trimmed.
    """
    # Nearly all segments are in order. Only the others are sorted.
    if (key[1:] >= end[:-1]).all():
        return key[:0], key[:0]
    late = key < _covered_before(end)
    next_key = np.append(key[1:], np.iinfo(np.int64).max)
    return np.flatnonzero(late), np.flatnonzero(late | (end > np.minimum.accumulate(next_key[::-1])[::-1]))


def _resolve(key: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the order of segments on the number line, and how many leading bytes of each repeat others."""
    # The sort is stable, so of two segments with the same bytes the one that was captured first is kept.
    order = np.argsort(key, kind="stable")
    begin, end = key[order], end[order]
    return order, np.minimum(np.maximum(_covered_before(end) - begin, 0), end - begin)


def _covered_before(end: Ints) -> Ints:
    """Return the running maximum of the ends before each entry."""
    return np.maximum.accumulate(np.append(-1, end))[:-1]


# One direction of a connection as a stream of bytes with holes. Reads copy nothing where possible.

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
