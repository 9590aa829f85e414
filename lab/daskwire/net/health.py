"""How the network treated each flow: losses, duplicates, round-trip times, windows, resets. Arrays in,
arrays out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskwire.arrays import U32, Flags, Floats, Ints
from daskwire.net.segments import ACK, FIN, RST, SYN, Lanes, Segments
from daskwire.net.tcp import BAND_BITS, Disorder, Pieces
from daskwire.net.tcp_options import DSACK, STAMPED

SAME_PACKET = 4  # how far apart, in its flow, the copies of one packet may be captured
COPY_WITHIN_NS = 100_000_000
FIRST_ACK_WITHIN = 8  # segments of a flow, its copies among them


@dataclass(frozen=True)
class RoundTrips:
    """Per flow: smallest and 5th-percentile time from a segment to its echo, how many were measured, and
    how.

    Measured between the capture point and the receiver, including its delayed ACKs: hence no means or
    medians.
    """

    minimum_ms: Floats
    p5_ms: Floats
    samples: Ints
    stamped: Flags


def count(segments: Segments, which: Flags, flows: int) -> Ints:
    """How many of some segments each flow has."""
    return np.bincount(segments.flow[which], minlength=flows).astype(np.int64)


def total(segments: Segments, values: U32, flows: int) -> Ints:
    """Sum of a column per flow."""
    return np.bincount(segments.flow, values, minlength=flows).astype(np.int64)


def copies(segments: Segments, order: Ints) -> Flags:
    """Packets captured more than once (flooding, several interfaces): all but the first.

    A copy has the same sequence and ACK numbers, length, flags, timestamp and, for IPv4, the same
    identification; a retransmission is a new packet with a new one. ``order``: rows by flow, see ``Lanes``.
    """
    result = np.zeros(len(segments), bool)
    names = ("flow", "ip_id", "seq", "ack", "length", "flags", "tsval")
    columns = [getattr(segments, name)[order] for name in names]
    time_ns = segments.time_ns[order]
    for distance in range(1, SAME_PACKET + 1):
        same = columns[0][distance:] == columns[0][:-distance]
        for column in columns[1:]:
            if not same.any():
                break
            same &= column[distance:] == column[:-distance]
        near = np.flatnonzero(same)
        near = near[np.abs(time_ns[near + distance] - time_ns[near]) < COPY_WITHIN_NS]
        # IPv6 and systems without IP identification: only the timestamp tells a copy from a retransmission
        near = near[(columns[1][near] != 0) | (columns[5][near] & STAMPED != 0)]
        result[order[near + distance]] = True
    return result


def resent(segments: Segments, disorder: Disorder, copied: Flags, flows: int) -> tuple[Ints, Ints, Ints]:
    """Per flow: retransmitted segments, their bytes, and segments that came late into a hole (reordering or
    repair). A SYN or FIN alone counts too: it may be lost, and a D-SACK tells of it, like payload.
    """
    rows = np.concatenate([disorder.resent, _openings_again(segments)])
    rows = rows[~copied[rows]]
    number = np.bincount(segments.flow[rows], minlength=flows)
    size = np.bincount(segments.flow[rows], segments.length[rows], minlength=flows)
    late = np.bincount(segments.flow[disorder.late], minlength=flows)
    return number.astype(np.int64), size.astype(np.int64), late.astype(np.int64)


def _openings_again(segments: Segments) -> Ints:
    """Rows of SYNs and FINs without payload that stand where one of their flow stood before."""
    rows = np.flatnonzero(segments.flags & (SYN | FIN))
    place = segments.seq[rows] + segments.length[rows]  # a FIN stands behind the payload, a SYN has none
    kind = (segments.flags[rows] & (SYN | FIN)).astype(np.int64)
    code = (segments.flow[rows].astype(np.int64) << 2 | kind) << 32 | place
    _, first = np.unique(code, return_index=True)
    again = np.ones(len(rows), bool)
    again[first] = False
    return np.asarray(rows[again & (segments.length[rows] == 0)], np.int64)


def spurious(segments: Segments, copied: Flags, flows: int) -> Ints:
    """Per flow: retransmissions that its receiver reported as needless (D-SACK, RFC 2883, sent in the other
    direction).
    """
    rows = np.flatnonzero((segments.flags & DSACK != 0) & ~copied)
    return np.bincount(segments.flow[rows] ^ 1, minlength=flows).astype(np.int64)


def zero_windows(segments: Segments, copied: Flags, flows: int) -> Ints:
    """Per flow: times its sender said that it cannot take more."""
    opening = segments.flags & (RST | SYN | FIN)
    return count(segments, (segments.window == 0) & (opening == 0) & ~copied, flows)


def resets(segments: Segments, flows: int) -> Ints:
    """Per flow: 1 when its sender broke the connection off. The first RST of a connection counts; what still
    arrives behind it is answered with another one each.
    """
    rows = np.flatnonzero(segments.flags & RST)
    _, first = np.unique(segments.flow[rows] // 2, return_index=True)
    return np.bincount(segments.flow[rows[first]], minlength=flows).astype(np.int64)


def round_trips(segments: Segments, lanes: Lanes, pieces: Pieces, disorder: Disorder) -> RoundTrips:
    """RTT from the capture point to each flow's receiver: by timestamps, else by sequence numbers (with
    Karn's rule).
    """
    flows = len(lanes.begin) - 1
    flow, sample_ns = _by_timestamps(segments, lanes.order)
    stamped = np.bincount(flow, minlength=flows) > 0
    if not stamped[pieces.flow].all():
        more_flow, more_ns = _by_sequence(segments, pieces, disorder, stamped)
        flow, sample_ns = np.concatenate([flow, more_flow]), np.concatenate([sample_ns, more_ns])
    by = np.lexsort((sample_ns, flow))
    flow, sample_ms = flow[by], sample_ns[by] / 1e6
    samples = np.bincount(flow, minlength=flows).astype(np.int64)
    begin = np.concatenate([[0], np.cumsum(samples)[:-1]])
    minimum, p5 = np.full(flows, np.nan), np.full(flows, np.nan)
    some = samples > 0
    minimum[some] = sample_ms[begin[some]]
    p5[some] = sample_ms[begin[some] + (samples[some] - 1) // 20]
    return RoundTrips(minimum, p5, samples, stamped)


def _by_timestamps(segments: Segments, order: Ints) -> tuple[Ints, Ints]:
    """Time from the first segment with a timestamp value to the first that echoes it, per flow."""
    flags = segments.flags
    carries = (flags & STAMPED != 0) & ((segments.length > 0) | (flags & (SYN | FIN) != 0))
    echoes = (flags & (STAMPED | ACK) == STAMPED | ACK) & (segments.tsecr != 0)
    sent, sent_ns = _first_of(segments, order[carries[order]], segments.tsval, 0)
    echo, echo_ns = _first_of(segments, order[echoes[order]], segments.tsecr, 1)
    _, here, there = np.intersect1d(sent, echo, assume_unique=True, return_indices=True)
    trip = echo_ns[there] - sent_ns[here]
    good = trip > 0
    return sent[here][good] >> 32, trip[good]


def _first_of(segments: Segments, rows: Ints, stamps: U32, other: int) -> tuple[Ints, Ints]:
    """First time of each (flow, timestamp), both in one number, in some rows that are ordered by flow; of the
    ``other`` direction's flow (1) or their own (0).
    """
    flow, stamp = segments.flow[rows], stamps[rows]
    change = np.flatnonzero((flow[1:] != flow[:-1]) | (stamp[1:] != stamp[:-1])) + 1
    change = np.append(0, change) if len(rows) else change
    code = (flow[change] ^ other).astype(np.int64) << 32 | stamp[change]
    unique, first = np.unique(code, return_index=True)
    return unique, segments.time_ns[rows[change[first]]]


def _sent_twice(segments: Segments, disorder: Disorder, flow: Ints, begin: Ints, end: Ints) -> Flags:
    """Karn's rule: which spans of streams had any of their bytes sent again, so that an ACK may be for
    either.
    """
    if not len(disorder.resent):
        return np.zeros(len(flow), bool)
    band = segments.flow[disorder.resent].astype(np.int64) << BAND_BITS
    again, reach = (
        band + disorder.resent_start,
        band + disorder.resent_start + segments.length[disorder.resent],
    )
    by = np.argsort(again, kind="stable")
    again, reach = again[by], np.maximum.accumulate(reach[by])
    before = np.searchsorted(again, (flow << BAND_BITS) + end) - 1
    return (before >= 0) & (reach[np.maximum(before, 0)] > (flow << BAND_BITS) + begin)


def _by_sequence(segments: Segments, pieces: Pieces, disorder: Disorder, stamped: Flags) -> tuple[Ints, Ints]:
    """Time from a data segment to the ACK of its last byte, for segments of flows without timestamps sent
    once.
    """
    flow = np.repeat(pieces.flow, np.diff(pieces.begin)).astype(np.int64)
    plain = np.flatnonzero(~stamped[flow] & ~np.isin(pieces.row, disorder.late))
    begin, end = pieces.start[plain], pieces.start[plain] + pieces.length[plain]
    plain = plain[~_sent_twice(segments, disorder, flow[plain], begin, end)]
    row = pieces.row[plain]
    code = flow[plain] << 32 | (segments.seq[row] + segments.length[row])
    acks = np.flatnonzero(segments.flags & (ACK | RST) == ACK)
    ack_code = (segments.flow[acks] ^ 1).astype(np.int64) << 32 | segments.ack[acks]
    unique, first = np.unique(ack_code, return_index=True)
    own, mine = np.unique(code, return_index=True)
    _, here, there = np.intersect1d(own, unique, assume_unique=True, return_indices=True)
    trip = segments.time_ns[acks[first[there]]] - segments.time_ns[row[mine[here]]]
    good = trip > 0
    return own[here][good] >> 32, trip[good]


@dataclass(frozen=True)
class Connect:
    """The opening of a connection. ``flow``: of the side that opened it; ``ms``: SYN until its ACK of the
    SYN-ACK, None when that cannot be told for certain.
    """

    flow: int
    time_ns: int
    attempts: int
    answered: bool
    refused: bool
    ms: float | None


def connects(segments: Segments, lanes: Lanes, copied: Flags, flows: int) -> Iterator[Connect]:
    """All connections of which a SYN was captured."""
    both = SYN | ACK
    opening = np.flatnonzero((segments.flags & both == SYN) & ~copied)
    answers = np.flatnonzero((segments.flags & both == both) & ~copied)
    answered = np.bincount(segments.flow[answers] ^ 1, minlength=flows)
    attempts = np.bincount(segments.flow[opening], minlength=flows)
    _, first = np.unique(segments.flow[opening], return_index=True)
    for row in np.sort(opening[first]).tolist():
        flow = int(segments.flow[row])
        tries, back = int(attempts[flow]), int(answered[flow])
        ms = _first_ack_ms(segments, lanes.rows(flow), row) if tries == back == 1 else None
        refused = not back and bool((segments.flags[lanes.rows(flow ^ 1)] & RST).any())
        yield Connect(flow, int(segments.time_ns[row]), tries, bool(back), refused, ms)


def _first_ack_ms(segments: Segments, rows: Ints, opening: int) -> float | None:
    """From a SYN until its sender's first ACK."""
    for row in rows[:FIRST_ACK_WITHIN].tolist():
        if segments.flags[row] & (SYN | ACK | RST) == ACK:
            if row < opening:  # captured in another order than it was sent
                return None
            return int(segments.time_ns[row] - segments.time_ns[opening]) / 1e6
    return None
