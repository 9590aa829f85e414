"""Reassembly: for each flow, which stream bytes lie where in the capture file. No payload is copied.

Many flows are handled together. Each flow gets a band of the 64-bit number line, so that one running maximum
or one sort over everything respects the borders between flows. Stream position 0 is the first byte after
the SYN, or the first byte seen when the capture began later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.wire.link import PSH, SYN, Segments
from lab.wire.lockstep import Ints

BAND_BITS = (
    42  # a flow's band is 4 TiB wide: positions are cut to +-1 TiB, far beyond any real stream in a capture
)
HALF = 1 << (BAND_BITS - 1)
TOGETHER = 1 << 18  # segments handled at once: all arrays on the way stay small enough to be reused
Flags = npt.NDArray[np.bool_]
U32 = npt.NDArray[np.uint32]


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


def by_flow(flow: npt.NDArray[np.int32]) -> Ints:
    """Stable order by flow number; 16-bit numbers sort much faster."""
    narrow = flow.astype(np.uint16) if len(flow) and int(flow.max()) < 1 << 16 else flow
    return np.argsort(narrow, kind="stable")


def reassemble(segments: Segments, origin: dict[int, int] | None = None) -> tuple[Pieces, Disorder]:
    """Put the payload of all flows in stream order.

    ``origin`` gives, for flows that are continued from an earlier call, the sequence number that is
    position 0.
    """
    row = np.flatnonzero(segments.length)
    row = row[by_flow(segments.flow[row])]
    flow = segments.flow[row]
    first = np.flatnonzero(np.diff(flow, prepend=-1))
    present = flow[first]
    zero, opened = _origins(segments, present, segments.seq[row[first]], origin or {})
    parts = [
        _group(segments, row[rows], first[flows] - rows.start, zero[flows])
        for rows, flows in _groups(first, len(row))
    ]
    joined: list[npt.NDArray[Any]] = (
        [np.concatenate(c) for c in zip(*parts, strict=True)] if parts else [row] * 10
    )
    counts, start, length, captured, offset, kept, whole, resent, resent_start, late = joined
    begin = np.append(0, np.cumsum(counts))
    pieces = Pieces(present, begin, opened, zero, start, length, captured, offset, kept, whole.astype(bool))
    return pieces, Disorder(resent, resent_start, late)


def _groups(first: Ints, number: int) -> Iterator[tuple[slice, slice]]:
    """Whole flows taken together until there are enough segments: slices of the rows and of the flows."""
    border = np.append(first, number)
    begin = 0
    while begin < len(first):
        end = int(np.searchsorted(border, border[begin] + TOGETHER, side="right")) - 1
        end = max(end, begin + 1)
        yield slice(int(border[begin]), int(border[end])), slice(begin, end)
        begin = end


def _group(segments: Segments, row: Ints, first: Ints, zero: U32) -> tuple[npt.NDArray[Any], ...]:
    """Reassemble some flows: number of pieces, the columns of ``Pieces`` from start on, those of
    ``Disorder``.
    """
    sizes = np.diff(np.append(first, len(row)))
    start = _unwrap(segments.seq[row], first, sizes, zero)
    length = segments.length[row].astype(np.int64)
    key = start + np.repeat(np.arange(len(first)) << BAND_BITS, sizes) + HALF
    resent, late, order, begin_at = _resolve(key, length, first)
    disorder = row[resent], start[resent], row[late]
    trimmed: Ints | int = 0
    if order is not None:
        order = order[~resent[order]]
        sizes = np.add.reduceat((~resent).astype(np.int64), first)
        row, length, begin_at, trimmed = row[order], length[order], begin_at[order], (begin_at - key)[order]
        length = length - trimmed
    band = np.repeat(np.arange(len(first)) << BAND_BITS, sizes) + HALF
    captured = np.maximum(segments.captured[row].astype(np.int64) - trimmed, 0)
    whole = (np.asarray(trimmed) == 0) & (captured == length) & (segments.flags[row] & PSH != 0)
    offset = segments.offset[row] + trimmed
    columns = sizes, begin_at - band, length.astype(np.uint32), captured.astype(np.uint32), offset, row, whole
    return *columns, *disorder


def _origins(
    segments: Segments, present: npt.NDArray[np.int32], seen: npt.NDArray[np.uint32], given: dict[int, int]
) -> tuple[npt.NDArray[np.uint32], Flags]:
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


def _unwrap(seq: npt.NDArray[np.uint32], first: Ints, sizes: Ints, zero: npt.NDArray[np.uint32]) -> Ints:
    """64-bit stream positions from 32-bit sequence numbers: steps are shorter than 2**31, so they can be
    summed.
    """
    step = np.diff(seq, prepend=seq[:1]).view(np.int32).astype(np.int64)
    step[first] = 0
    total = np.cumsum(step)
    offset = (seq[first] - zero).view(np.int32).astype(np.int64) - total[first]
    return np.clip(total + np.repeat(offset, sizes), -HALF // 2, HALF // 2)


def _resolve(key: Ints, length: Ints, first: Ints) -> tuple[Flags, Flags, Ints | None, Ints]:
    """Find what each segment adds. Returns resent, late, the sort order (None: in order already), where
    news begins.
    """
    before = _covered_before(key + length, first)
    early = key < before
    nothing = np.zeros(len(key), bool)
    if not early.any():
        return nothing, nothing, None, key
    order = np.argsort(key, kind="stable")
    sorted_key, sorted_end = key[order], (key + length)[order]
    sorted_begin = np.maximum(sorted_key, _covered_before(sorted_end, first))
    resent, begin_at = nothing.copy(), np.empty_like(key)
    resent[order] = sorted_begin >= sorted_end
    begin_at[order] = sorted_begin
    return resent, early & ~resent, order, begin_at


def _covered_before(end: Ints, first: Ints) -> Ints:
    """Running maximum of the ends before each entry, within its flow (bands keep flows apart)."""
    before = np.empty_like(end)
    before[1:] = np.maximum.accumulate(end)[:-1]
    before[first] = -1
    return before
