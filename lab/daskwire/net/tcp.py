"""Reassembly: for each flow, which stream bytes lie where in the capture file. No payload is copied.

Many flows are handled together. Each flow gets a band of the 64-bit number line, so that one running maximum
or one sort over everything respects the borders between flows. Stream position 0 is the first byte after
the SYN, or the first byte seen when the capture began later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daskwire.arrays import U32, Columns, Flags, Ints
from daskwire.net.segments import PSH, SYN, Segments, by_flow

BAND_BITS = (
    42  # a flow's band is 4 TiB wide: positions are cut to +-1 TiB, far beyond any real stream in a capture
)
HALF = 1 << (BAND_BITS - 1)
TOGETHER = 1 << 18  # segments handled at once: all arrays on the way stay small enough to be reused
PIECE = ("i8", "u4", "u4", "i8", "i8", "?")  # columns of Pieces from start on


@dataclass(frozen=True)
class Pieces:
    """What each flow's stream is made of: non-overlapping pieces, ordered by flow and position.

    ``flow`` and ``begin`` (index of a flow's first piece; one more entry at the end) say whose they are. A
    piece covers stream bytes ``start .. start + length``, of which the first ``captured`` are in the
    capture at address ``offset``; ``row`` is the segment that brought them. ``opened`` tells whether the
    flow's SYN was seen; ``zero`` is the sequence number of position 0.
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
    whole: Flags  # a segment's payload, untrimmed and with PSH: may be exactly one message


@dataclass(frozen=True)
class Disorder:
    """Segments that did not simply follow: rows of those that brought nothing new (``resent``, with their
    stream positions ``resent_start``) and of those that came after later ones (``late``).
    """

    resent: Ints
    resent_start: Ints
    late: Ints


def reassemble(segments: Segments, origin: dict[int, int] | None = None) -> tuple[Pieces, Disorder]:
    """Put the payload of all flows in stream order.

    ``origin`` gives, for flows that are continued from an earlier call, the sequence number that is
    position 0.
    """
    row = np.flatnonzero(segments.length)
    row = row[by_flow(segments.flow[row])]
    flow = segments.flow[row]
    first = np.flatnonzero(np.diff(flow, prepend=np.int32(-1)))
    present = flow[first]
    zero, opened = _origins(segments, present, segments.seq[row[first]], origin or {})
    counts, columns, resent, late = (Columns(types) for types in (("i8",), PIECE, ("i8", "i8"), ("i8",)))
    for rows, flows in _groups(first, len(row)):
        found = _group(segments, row[rows], first[flows] - rows.start, zero[flows])
        for table, arrays in zip((counts, columns, resent, late), found, strict=True):
            table.add(arrays, rows.stop / len(row))
    begin = np.append(0, np.cumsum(*counts.arrays()))
    return Pieces(present, begin, opened, zero, *columns.arrays()), Disorder(*resent.arrays(), *late.arrays())


def _groups(first: Ints, number: int) -> Iterator[tuple[slice, slice]]:
    """Whole flows taken together until there are enough segments: slices of the rows and of the flows."""
    border = np.append(first, number)
    begin = 0
    while begin < len(first):
        end = int(np.searchsorted(border, border[begin] + TOGETHER, side="right")) - 1
        end = max(end, begin + 1)
        yield slice(int(border[begin]), int(border[end])), slice(begin, end)
        begin = end


def _group(segments: Segments, row: Ints, first: Ints, zero: U32) -> tuple[Sequence[npt.NDArray[Any]], ...]:
    """Reassemble some flows: number of pieces, the columns of ``Pieces`` from start on, the two parts of
    ``Disorder``.
    """
    sizes = np.diff(np.append(first, len(row)))
    row, start, length = row.copy(), _unwrap(segments.seq[row], first, zero), segments.length[row]
    key = start + np.repeat(np.arange(len(first)) << BAND_BITS, sizes) + HALF
    end = key + length
    late, upset = _upset(key, end)
    order, known = _resolve(key[upset], end[upset])
    source = upset[order]
    adds = known < length[source]
    resent = np.sort(source[~adds])
    overtaken = np.zeros(len(row), np.bool_)
    overtaken[late] = True
    overtaken[resent] = False
    disorder = (row[resent], start[resent]), (row[overtaken],)
    row[upset], start[upset], length[upset] = row[source], start[source] + known, length[source] - known
    captured, offset = segments.captured[row], segments.offset[row]
    whole = (captured == segments.length[row]) & (segments.flags[row] & PSH != 0)
    captured[upset] = np.maximum(captured[upset] - known, 0)
    offset[upset] += known
    whole[upset] &= known == 0
    columns: list[npt.NDArray[Any]] = [start, length, captured, offset, row, whole]
    if len(resent):
        keep = np.ones(len(row), bool)
        keep[upset] = adds
        sizes, columns = np.add.reduceat(keep, first, dtype=np.int64), [c[keep] for c in columns]
    return (sizes,), columns, *disorder


def _origins(
    segments: Segments, present: npt.NDArray[np.int32], seen: U32, given: dict[int, int]
) -> tuple[U32, Flags]:
    """Sequence number of position 0 for each present flow, and whether it is the true beginning."""
    syn = np.flatnonzero(segments.flags & SYN)[::-1]  # reversed: the first one wins
    last = int(max(present.max(initial=0), segments.flow[syn].max(initial=0)))
    number, opened = np.zeros(last + 1, np.uint32), np.zeros(last + 1, bool)
    number[segments.flow[syn]] = segments.seq[syn] + np.uint32(1)
    opened[segments.flow[syn]] = True
    zero = np.where(opened[present], number[present], seen).astype(np.uint32)
    if given:
        known = [(i, given[f]) for i, f in enumerate(present.tolist()) if f in given]
        for index, sequence in known:
            zero[index] = sequence
    return zero, opened[present]


def _unwrap(seq: U32, first: Ints, zero: U32) -> Ints:
    """64-bit stream positions from 32-bit sequence numbers: steps are shorter than 2**31, so they can be
    summed.
    """
    step = np.diff(seq, prepend=seq[:1]).view(np.int32).astype(np.int64)
    begin = (seq[first] - zero).view(np.int32).astype(np.int64)
    step[first] = 0
    end = begin + np.add.reduceat(step, first)
    step[first] = begin - np.append(0, end[:-1])  # from where the flow before ended
    return np.clip(np.cumsum(step), -HALF // 2, HALF // 2)


def _upset(key: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The segments that begin before others ended that came earlier; all those that come before, after or
    over others than their place says. The others are where they belong.
    """
    if (key[1:] >= end[:-1]).all():
        return key[:0], key[:0]
    late = key < _covered_before(end)
    next_key = np.append(key[1:], np.iinfo(np.int64).max)
    return np.flatnonzero(late), np.flatnonzero(late | (end > np.minimum.accumulate(next_key[::-1])[::-1]))


def _resolve(key: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The order of segments on the number line, and how many bytes at the beginning of each, so ordered, the
    ones before it brought.
    """
    order = np.argsort(key, kind="stable")
    begin, end = key[order], end[order]
    return order, np.minimum(np.maximum(_covered_before(end) - begin, 0), end - begin)


def _covered_before(end: Ints) -> Ints:
    """Running maximum of the ends before each entry."""
    return np.maximum.accumulate(np.append(-1, end))[:-1]
