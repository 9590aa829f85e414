"""Retransmitted and late segments, and arithmetic with intervals of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from daskwire.base.arrays import Flags, Ints
from daskwire.decoder.net.segments import Segments
from daskwire.decoder.net.tcp import BAND_BITS, HALF_BAND, Disorder, Pieces

# Arithmetic with intervals of time.

SECOND_NS = 1_000_000_000
Interval = tuple[int, int]  # start and stop, nanoseconds since 1970


def intervals(start: Ints, stop: Ints) -> list[Interval]:
    return list(zip(start.tolist(), stop.tolist(), strict=True))


def intersect(first: Interval, second: Interval) -> bool:
    """Return whether two intervals have a moment in common."""
    return first[0] <= second[1] and first[1] >= second[0]


def hull(waits: Iterable[Interval]) -> Interval:
    """Return the interval from the first start to the last stop."""
    starts, stops = zip(*waits, strict=True)
    return min(starts), max(stops)


def merged(waits: Iterable[Interval], gap_ns: int = 0) -> list[Interval]:
    """Merge intervals that overlap or are at most ``gap_ns`` apart."""
    result: list[Interval] = []
    for start, stop in sorted(waits):
        if result and start <= result[-1][1] + gap_ns:
            result[-1] = (result[-1][0], max(result[-1][1], stop))
        else:
            result.append((start, stop))
    return result


def seconds(waits: Iterable[Interval]) -> float:
    """Return the total length of intervals; overlaps count once."""
    return sum(stop - start for start, stop in merged(waits)) / SECOND_NS


def seconds_by_flow(flows: Iterable[int], waits: Iterable[Interval]) -> float:
    """Return the total length of intervals; overlaps count once per flow."""
    by_flow: defaultdict[int, list[Interval]] = defaultdict(list)
    for flow, wait in zip(flows, waits, strict=True):
        by_flow[flow].append(wait)
    return sum(map(seconds, by_flow.values()))


def overlap(interval: Interval, others: Iterable[Interval]) -> float:
    """Return which share of an interval is covered by others."""
    start, stop = interval
    inside = [(max(start, a), min(stop, b)) for a, b in others if a < stop and b > start]
    return seconds(inside) * SECOND_NS / max(stop - start, 1)


# Retransmitted and late segments: what was sent again and when, and what came late and why.

AT_ONCE_NS = 3_000_000  # without IP identifications, a segment that is less late was reordered


@dataclass(frozen=True)
class Retransmissions:
    """Retransmitted segments whose first transmission was captured, so they were lost behind that point.

    Attributes:
        flow: their flow.
        position: their stream position.
        length: their payload, bytes.
        previous_ns: when these bytes were sent before.
        time_ns: when they were sent again.
    """

    flow: Ints
    position: Ints
    length: Ints
    previous_ns: Ints
    time_ns: Ints

    def take(self, which: Flags | Ints) -> Retransmissions:
        return Retransmissions(*(getattr(self, f.name)[which] for f in fields(self)))

    def __len__(self) -> int:
        return len(self.flow)


@dataclass(frozen=True)
class Late:
    """Segments that filled a hole.

    Attributes:
        flow: their flow.
        hole_ns: when the hole was noticed: the time of the segment after it.
        time_ns: when it was filled.
        reordered: it was overtaken; otherwise it was lost before the capture point, and retransmitted.
    """

    flow: Ints
    hole_ns: Ints
    time_ns: Ints
    reordered: Flags

    def take(self, which: Flags | Ints) -> Late:
        return Late(*(getattr(self, f.name)[which] for f in fields(self)))


def retransmissions(segments: Segments, pieces: Pieces, disorder: Disorder, which: Flags) -> Retransmissions:
    """Select some of the segments without new bytes, and find when their bytes were sent before."""
    rows, position = disorder.resent[which], disorder.resent_start[which]
    flow = segments.flow[rows].astype(np.int64)
    band = np.zeros(int(max(pieces.flow.max(initial=0), flow.max(initial=0))) + 1, np.int64)
    band[pieces.flow] = np.arange(len(pieces.flow)) << BAND_BITS
    keys = pieces.start + HALF_BAND + np.repeat(band[pieces.flow], np.diff(pieces.begin))
    piece = np.searchsorted(keys, position + HALF_BAND + band[flow], side="right") - 1
    time_ns = segments.time_ns[rows]
    previous_ns = np.minimum(segments.time_ns[pieces.row[np.maximum(piece, 0)]], time_ns)
    by = np.lexsort((time_ns, position, flow))
    flow, position, time_ns, previous_ns = flow[by], position[by], time_ns[by], previous_ns[by]
    again = (flow[1:] == flow[:-1]) & (position[1:] == position[:-1])
    previous_ns[1:][again] = time_ns[:-1][again]
    length = segments.length[rows[by]].astype(np.int64)
    return Retransmissions(flow, position, length, previous_ns, time_ns)


def late_segments(segments: Segments, pieces: Pieces, disorder: Disorder) -> Late:
    """Find the segments that came after later ones. Linux numbers the packets of a connection in order."""
    order = np.argsort(pieces.row, kind="stable")
    piece = (
        order[np.searchsorted(pieces.row, disorder.late, sorter=order)] if len(disorder.late) else order[:0]
    )
    owner = np.searchsorted(pieces.begin, piece, side="right") - 1
    has_next = piece + 1 < pieces.begin[owner + 1]
    piece, rows = piece[has_next], disorder.late[has_next]
    following = pieces.row[piece + 1]
    earlier = segments.time_ns[following] < segments.time_ns[rows]
    rows, following = rows[earlier], following[earlier]
    time_ns, hole_ns = segments.time_ns[rows], segments.time_ns[following]
    number, next_number = segments.ip_id[rows], segments.ip_id[following]
    numbered = (number != 0) & (next_number != 0)
    older = (next_number - number).astype(np.int16) > 0
    reordered = np.where(numbered, older, time_ns - hole_ns < AT_ONCE_NS)
    return Late(segments.flow[rows].astype(np.int64), hole_ns, time_ns, np.asarray(reordered, np.bool_))
