"""Reassembly: for each flow, which stream bytes lie where in the capture file. No payload is copied.

All flows are handled together. Each flow gets a band of the 64-bit number line, so that one running maximum
or one sort over everything respects the borders between flows. Stream position 0 is the first byte after
the SYN, or the first byte seen when the capture began later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.wire.errors import WireError
from lab.wire.link import PSH, SYN, Segments
from lab.wire.lockstep import Ints

BAND_BITS = (
    42  # a flow's band is 4 TiB wide: positions are cut to +-1 TiB, far beyond any real stream in a capture
)
HALF = 1 << (BAND_BITS - 1)
MAX_FLOWS = 1 << 20
Flags = npt.NDArray[np.bool_]


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
    zero: npt.NDArray[np.uint32]
    start: Ints
    length: Ints
    captured: Ints
    offset: Ints
    row: Ints
    whole: Flags  # a segment's payload, untrimmed and with PSH: may be exactly one message


@dataclass(frozen=True)
class Order:
    """Data segments in flow order: ``row`` in the segment table, position in the stream, what came of each.

    ``resent`` marks segments that brought nothing new, ``late`` those that filled a hole.
    """

    row: Ints
    flow: npt.NDArray[np.int32]
    start: Ints
    resent: Flags
    late: Flags


def by_flow(flow: npt.NDArray[np.int32]) -> Ints:
    """Stable order by flow number; 16-bit numbers sort much faster."""
    narrow = flow.astype(np.uint16) if len(flow) and int(flow.max()) < 1 << 16 else flow
    return np.argsort(narrow, kind="stable")


def reassemble(segments: Segments, origin: dict[int, int] | None = None) -> tuple[Pieces, Order]:
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
    if not len(row):
        first = first[:0]
    sizes = np.diff(np.append(first, len(row)))
    start = _unwrap(segments.seq[row], first, sizes, zero)
    length = segments.length[row].astype(np.int64)
    if len(first) > MAX_FLOWS:
        raise WireError(f"more than {MAX_FLOWS} flows with data in one capture; use --since and --until")
    band = np.repeat(np.arange(len(first)) << BAND_BITS, sizes) + HALF
    key = start + band
    resent, late, order, begin_at = _resolve(key, length, first)
    pieces = _pieces(segments, row, key, length, order, begin_at, first, present, opened, zero)
    return pieces, Order(row, flow, start, resent, late)


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


def _pieces(
    segments: Segments,
    row: Ints,
    key: Ints,
    length: Ints,
    order: Ints | None,
    begin_at: Ints,
    first: Ints,
    present: npt.NDArray[np.int32],
    opened: Flags,
    zero: npt.NDArray[np.uint32],
) -> Pieces:
    """The news that segments brought, in stream order."""
    begin = np.append(first, len(row))
    trimmed: Ints | int = 0
    if order is not None:
        news = begin_at[order] < (key + length)[order]
        begin = np.append(0, np.cumsum(np.add.reduceat(news.astype(np.int64), first)))
        order = order[news]
        row, length = row[order], length[order]
        trimmed = begin_at[order] - key[order]
        begin_at = begin_at[order]
        length = length - trimmed
    band = np.repeat(np.arange(len(present)) << BAND_BITS, np.diff(begin)) + HALF
    captured = np.maximum(segments.captured[row].astype(np.int64) - trimmed, 0)
    return Pieces(
        flow=present,
        begin=begin,
        opened=opened,
        zero=zero,
        start=begin_at - band,
        length=length,
        captured=captured,
        offset=segments.offset[row] + trimmed,
        row=row,
        whole=(np.asarray(trimmed) == 0) & (captured == length) & (segments.flags[row] & PSH != 0),
    )
