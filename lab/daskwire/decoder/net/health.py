"""TCP analysis per flow: losses, round-trip times, windows, and how much of the stream was captured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskwire.base.arrays import U32, Flags, Floats, Ints
from daskwire.decoder.net.packets.tcp_options import DuplicateSacks
from daskwire.decoder.net.segments import ACK, DSACK, FIN, RST, STAMPED, SYN, Lanes, Segments
from daskwire.decoder.net.tcp import BAND_BITS, Disorder, Pieces

# Measure how much of each stream was sent during the capture, and how much of that is missing.
#
# The captured segments show what is present. The receiver's ACKs show what else was sent: in holes, after
# the
# last segment, or in a whole direction without a captured packet. If a connection began before the capture,
# its
# streams count from the first byte in the capture.

LAST = 4  # ACKs that are searched for the highest one, because a few may be reordered
PHANTOM = 1  # sequence numbers that a FIN uses


@dataclass(frozen=True)
class Extent:
    """Positions and sizes in stream bytes, per flow.

    Attributes:
        begin: first position of the stream.
        end: position after the last byte that was captured or acknowledged.
        missing: bytes that are not in the capture.
        lost: missing bytes that the receiver acknowledged, so that the capture lost them.
        hole: position of the first missing byte.
    """

    begin: Ints
    end: Ints
    missing: Ints
    lost: Ints
    hole: Ints


@dataclass(frozen=True)
class Lives:
    """Whether each connection's opening and end were captured."""

    opened: Flags
    closed: Flags


def lives(segments: Segments, connections: int) -> Lives:
    """Find which connections have a SYN (opened) and a FIN or RST (closed) in the capture."""
    opened, closed = np.zeros(connections, bool), np.zeros(connections, bool)
    opened[segments.flow[segments.flags & SYN != 0] >> 1] = True
    closed[segments.flow[segments.flags & (FIN | RST) != 0] >> 1] = True
    return Lives(opened, closed)


def extents(segments: Segments, lanes: Lanes, pieces: Pieces) -> Extent:
    """Measure the extent of every flow."""
    columns = Extent(*(np.zeros(len(lanes.begin) - 1, np.int64) for _ in range(5)))
    index_of = {flow: index for index, flow in enumerate(pieces.flow.tolist())}
    for flow in range(len(lanes.begin) - 1):
        index = index_of.get(flow)
        if index is None:
            row = _extent_from_acks(segments, lanes, flow)
        else:
            row = _extent_from_payload(segments, lanes, pieces, index)
        for column, value in zip(vars(columns).values(), row, strict=True):
            column[flow] = value
    return columns


def _extent_from_payload(segments: Segments, lanes: Lanes, pieces: Pieces, index: int) -> tuple[int, ...]:
    """Measure a flow with captured payload."""
    flow, part = int(pieces.flow[index]), slice(int(pieces.begin[index]), int(pieces.begin[index + 1]))
    start, length = pieces.start[part], pieces.length[part]
    begin, last = int(start[0]), int(start[-1] + length[-1])
    if pieces.opened[index]:
        begin = min(begin, 0)
    acks = _acks(segments, lanes.rows(flow ^ 1)[-LAST:])
    reached = max((_step(segments.ack[row], int(pieces.zero[index]) + last) for row in acks), default=0)
    tail = reached if reached > PHANTOM else 0
    ends = start + length
    previous = np.concatenate([[begin], ends[:-1]])
    gap = np.flatnonzero(start > previous)
    if not len(gap):
        return begin, last + tail, tail, tail, last
    top = int(_ack_positions(segments, lanes, flow, int(pieces.zero[index])).max(initial=0))
    lost = int(np.clip(np.minimum(start[gap], top) - previous[gap], 0, None).sum())
    missing = int((start - previous)[gap].sum())
    return begin, last + tail, missing + tail, lost + tail, int(previous[gap[0]])


def _extent_from_acks(segments: Segments, lanes: Lanes, flow: int) -> tuple[int, ...]:
    """Measure a flow without captured payload by what its receiver acknowledged."""
    acks = _acks(segments, lanes.rows(flow ^ 1))
    if not len(acks):
        return 0, 0, 0, 0, 0
    size = int(_ack_positions(segments, lanes, flow, _zero(segments, lanes, flow))[-LAST:].max())
    size = size if size > PHANTOM else 0
    return 0, size, size, size, 0


def acknowledged(segments: Segments, lanes: Lanes, pieces: Pieces, flow: int) -> Ints:
    """Return the distinct stream positions that the receiver of a flow acknowledged, ascending."""
    index = np.flatnonzero(pieces.flow == flow)
    zero = int(pieces.zero[index[0]]) if len(index) else _zero(segments, lanes, flow)
    return np.unique(_ack_positions(segments, lanes, flow, zero))


def _zero(segments: Segments, lanes: Lanes, flow: int) -> int:
    """Return the sequence number of position 0 of a flow without captured payload."""
    rows = lanes.rows(flow)
    opening = rows[segments.flags[rows] & SYN != 0]
    if len(opening):
        return int(segments.seq[opening[0]]) + 1
    acks = _acks(segments, lanes.rows(flow ^ 1))
    return int(segments.ack[acks[0]]) if len(acks) else 0


def _acks(segments: Segments, rows: Ints) -> Ints:
    acks: Ints = rows[segments.flags[rows] & (ACK | RST) == ACK]
    return acks


def _step(number: np.uint32, zero: int) -> int:
    """Return the signed distance from sequence number ``zero`` to ``number``."""
    step = (int(number) - zero) & 0xFFFFFFFF
    return step - (1 << 32) if step >> 31 else step


def _ack_positions(segments: Segments, lanes: Lanes, flow: int, zero: int) -> Ints:
    """Return the stream position that each ACK of a flow acknowledges, in capture order."""
    ack = segments.ack[_acks(segments, lanes.rows(flow ^ 1))]
    steps = np.diff(ack, prepend=ack[:1]).view(np.int32).astype(np.int64)
    positions: Ints = np.cumsum(steps) + (_step(ack[0], zero) if len(ack) else 0)
    return positions


# TCP analysis per flow: losses, duplicates, round-trip times, windows, resets, connection attempts.

FIRST_ACK_WITHIN = 8  # segments of a flow, including copies


@dataclass(frozen=True)
class RoundTrips:
    """Round-trip times per flow, between the capture point and the receiver.

    They include the receiver's delayed ACKs, hence no means or medians.

    Attributes:
        minimum_ms: smallest time from a segment to its acknowledgement, NaN without a sample.
        p5_ms: 5th percentile.
        samples: number of samples.
    """

    minimum_ms: Floats
    p5_ms: Floats
    samples: Ints


@dataclass(frozen=True)
class Samples:
    """Round-trip times: the flow of the measured segments, when each was acknowledged, and the RTT."""

    flow: Ints
    time_ns: Ints
    rtt_ns: Ints


def count(segments: Segments, which: Flags, flows: int) -> Ints:
    """Count the selected segments of each flow."""
    return np.bincount(segments.flow[which], minlength=flows).astype(np.int64)


def total(segments: Segments, values: U32, flows: int) -> Ints:
    """Sum a column of the segments per flow."""
    return np.bincount(segments.flow, values, minlength=flows).astype(np.int64)


def resent(segments: Segments, disorder: Disorder, copied: Flags, flows: int) -> tuple[Ints, Ints, Ints]:
    """Count retransmitted segments, their bytes, and late segments that filled a hole, per flow.

    A retransmitted SYN or FIN without payload counts too: a D-SACK reports it like payload.
    """
    rows = np.concatenate([disorder.resent, _repeated_syn_fin(segments)])
    rows = rows[~copied[rows]]
    number = np.bincount(segments.flow[rows], minlength=flows)
    size = np.bincount(segments.flow[rows], segments.length[rows], minlength=flows)
    late = np.bincount(segments.flow[disorder.late], minlength=flows)
    return number.astype(np.int64), size.astype(np.int64), late.astype(np.int64)


def _repeated_syn_fin(segments: Segments) -> Ints:
    """Return the rows of SYNs and FINs without payload that repeat an earlier one of their flow."""
    rows = np.flatnonzero(segments.flags & (SYN | FIN))
    position = segments.seq[rows] + segments.length[rows]  # a FIN follows the payload; a SYN has none
    kind = (segments.flags[rows] & (SYN | FIN)).astype(np.int64)
    code = (segments.flow[rows].astype(np.int64) << 2 | kind) << 32 | position
    _, first = np.unique(code, return_index=True)
    repeated = np.ones(len(rows), bool)
    repeated[first] = False
    return np.asarray(rows[repeated & (segments.length[rows] == 0)], np.int64)


def needless(segments: Segments, disorder: Disorder, copied: Flags, sacks: DuplicateSacks) -> Flags:
    """Select those of ``disorder.resent`` whose receiver reported that it has them twice.

    One report covers all segments that it joins. Of several retransmissions of the same bytes, the first ones
    may have been lost, so the last ones were needless.
    """
    result = np.zeros(len(disorder.resent), bool)
    reports = np.flatnonzero((segments.flags & DSACK != 0) & ~copied)
    ranges = sacks.ranges(segments.offset[reports])
    flow = segments.flow[reports[ranges.row]] ^ 1
    is_resent = ~copied[disorder.resent]
    for own in np.intersect1d(flow, segments.flow[disorder.resent[is_resent]]).tolist():
        index = np.flatnonzero(is_resent & (segments.flow[disorder.resent] == own))
        index = index[np.lexsort((segments.time_ns[disorder.resent[index]], disorder.resent_start[index]))]
        rows, zero = disorder.resent[index], segments.seq[disorder.resent[index[0]]]
        middle = (segments.seq[rows] - zero).view(np.int32) + segments.length[rows].astype(np.int64) // 2
        left, right = (
            np.sort((edge[flow == own] - zero).view(np.int32)) for edge in (ranges.left, ranges.right)
        )
        number = np.searchsorted(left, middle, "right") - np.searchsorted(right, middle, "right")
        _, first, copies = np.unique(disorder.resent_start[index], return_index=True, return_counts=True)
        followers = np.repeat(first + copies, copies) - np.arange(len(index)) - 1
        result[index] = followers < number
    return result


def spurious(segments: Segments, copied: Flags, needless_rows: Ints, flows: int) -> Ints:
    """Count the retransmissions of each flow that its receiver reported as unnecessary (D-SACK, RFC 2883).

    Each report is about one at least, also if it was not captured.
    """
    rows = np.flatnonzero((segments.flags & DSACK != 0) & ~copied)
    reports = np.bincount(segments.flow[rows] ^ 1, minlength=flows)
    retransmissions = np.bincount(segments.flow[needless_rows], minlength=flows)
    return np.maximum(reports, retransmissions).astype(np.int64)


def zero_windows(segments: Segments, copied: Flags, flows: int) -> Ints:
    """Count the segments of each flow whose sender advertised a receive window of 0."""
    opening = segments.flags & (RST | SYN | FIN)
    return count(segments, (segments.window == 0) & (opening == 0) & ~copied, flows)


def resets(segments: Segments, flows: int) -> Ints:
    """Return 1 for each flow whose sender reset the connection.

    Only the first RST of a connection counts: every segment that arrives later is answered with another RST.
    """
    rows = np.flatnonzero(segments.flags & RST)
    _, first = np.unique(segments.flow[rows] // 2, return_index=True)
    return np.bincount(segments.flow[rows[first]], minlength=flows).astype(np.int64)


def round_trips(segments: Segments, lanes: Lanes, pieces: Pieces, disorder: Disorder) -> RoundTrips:
    """Measure the RTT to each flow's receiver by timestamps, else by sequence numbers with Karn's rule."""
    flows = len(lanes.begin) - 1
    trips = rtt_samples(segments, lanes, pieces, disorder)
    by = np.lexsort((trips.rtt_ns, trips.flow))
    flow, sample_ms = trips.flow[by], trips.rtt_ns[by] / 1e6
    samples = np.bincount(flow, minlength=flows).astype(np.int64)
    begin = np.concatenate([[0], np.cumsum(samples)[:-1]])
    minimum, p5 = np.full(flows, np.nan), np.full(flows, np.nan)
    measured = samples > 0
    minimum[measured] = sample_ms[begin[measured]]
    p5[measured] = sample_ms[begin[measured] + (samples[measured] - 1) // 20]
    return RoundTrips(minimum, p5, samples)


def rtt_samples(segments: Segments, lanes: Lanes, pieces: Pieces, disorder: Disorder) -> Samples:
    """Measure the time from segments to their acknowledgements, by timestamps, else by sequence numbers."""
    stamped = _by_timestamps(segments, lanes.order)
    has_stamps = np.bincount(stamped.flow, minlength=len(lanes.begin) - 1) > 0
    if has_stamps[pieces.flow].all():
        return stamped
    plain = _by_sequence(segments, pieces, disorder, has_stamps)
    return Samples(
        *(np.concatenate(pair) for pair in zip(vars(stamped).values(), vars(plain).values(), strict=True))
    )


def echo_delays(segments: Segments, lanes: Lanes) -> Samples:
    """Measure the time from the receiver's ACK to the sender's first data segment that echoes its timestamp.

    While a sender has data to send, this is the RTT between capture point and sender, its queue included.
    The samples' flow is the sender's.
    """
    acks = (segments.flags & (STAMPED | ACK | SYN) == STAMPED | ACK) & (segments.length == 0)
    data = (segments.flags & STAMPED != 0) & (segments.length > 0)
    delays = _between(segments, lanes.order, acks, data)
    return Samples(delays.flow ^ 1, delays.time_ns, delays.rtt_ns)


def _by_timestamps(segments: Segments, order: Ints) -> Samples:
    """Measure from the first segment with a timestamp value to the first one that echoes it."""
    flags = segments.flags
    carries = (flags & STAMPED != 0) & ((segments.length > 0) | (flags & (SYN | FIN) != 0))
    echoes = (flags & (STAMPED | ACK) == STAMPED | ACK) & (segments.tsecr != 0)
    return _between(segments, order, carries, echoes)


def _between(segments: Segments, order: Ints, carries: Flags, echoes: Flags) -> Samples:
    """Measure from the first selected segment with a timestamp value to the first selected echo of it."""
    value, value_ns = _first_of(segments, order[carries[order]], segments.tsval, 0)
    echo, echo_ns = _first_of(segments, order[echoes[order]], segments.tsecr, 1)
    _, value_at, echo_at = np.intersect1d(value, echo, assume_unique=True, return_indices=True)
    trip = echo_ns[echo_at] - value_ns[value_at]
    positive = trip > 0
    return Samples(value[value_at][positive] >> 32, echo_ns[echo_at][positive], trip[positive])


def _first_of(segments: Segments, rows: Ints, stamps: U32, other: int) -> tuple[Ints, Ints]:
    """Return each distinct ``flow << 32 | timestamp`` and the time of its first segment.

    Args:
        segments: the segments.
        rows: their rows, ordered by flow.
        stamps: the timestamp column.
        other: 1 to assign a timestamp to the flow of the other direction, else 0.
    """
    flow, stamp = segments.flow[rows], stamps[rows]
    change = np.flatnonzero((flow[1:] != flow[:-1]) | (stamp[1:] != stamp[:-1])) + 1
    change = np.append(0, change) if len(rows) else change
    code = (flow[change] ^ other).astype(np.int64) << 32 | stamp[change]
    unique, first = np.unique(code, return_index=True)
    return unique, segments.time_ns[rows[change[first]]]


def _sent_twice(segments: Segments, disorder: Disorder, flow: Ints, begin: Ints, end: Ints) -> Flags:
    """Select the stream ranges with retransmitted bytes, whose ACK is ambiguous (Karn's rule)."""
    if not len(disorder.resent):
        return np.zeros(len(flow), bool)
    band = segments.flow[disorder.resent].astype(np.int64) << BAND_BITS
    resent_begin = band + disorder.resent_start
    resent_end = resent_begin + segments.length[disorder.resent]
    by = np.argsort(resent_begin, kind="stable")
    resent_begin, resent_end = resent_begin[by], np.maximum.accumulate(resent_end[by])
    before = np.searchsorted(resent_begin, (flow << BAND_BITS) + end) - 1
    return (before >= 0) & (resent_end[np.maximum(before, 0)] > (flow << BAND_BITS) + begin)


def _by_sequence(segments: Segments, pieces: Pieces, disorder: Disorder, stamped: Flags) -> Samples:
    """Measure from a data segment that was sent once to the ACK of its last byte.

    Only flows without timestamps are measured.
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
    data_code, data_first = np.unique(code, return_index=True)
    _, data_at, ack_at = np.intersect1d(data_code, unique, assume_unique=True, return_indices=True)
    ack_ns = segments.time_ns[acks[first[ack_at]]]
    trip = ack_ns - segments.time_ns[row[data_first[data_at]]]
    positive = trip > 0
    return Samples(data_code[data_at][positive] >> 32, ack_ns[positive], trip[positive])


@dataclass(frozen=True)
class Connect:
    """An attempt to open a connection.

    Attributes:
        flow: flow of the side that sent the SYN.
        time_ns: time of the first SYN.
        attempts: number of SYNs.
        answered: a SYN-ACK was captured.
        refused: an RST was the first answer.
        ms: time from the SYN to the ACK of the SYN-ACK; None if ambiguous.
    """

    flow: int
    time_ns: int
    attempts: int
    answered: bool
    refused: bool
    ms: float | None


def connects(segments: Segments, lanes: Lanes, copied: Flags, flows: int) -> Iterator[Connect]:
    """Yield every connection attempt with a captured SYN."""
    syn_ack = SYN | ACK
    opening = np.flatnonzero((segments.flags & syn_ack == SYN) & ~copied)
    answers = np.flatnonzero((segments.flags & syn_ack == syn_ack) & ~copied)
    answered = np.bincount(segments.flow[answers] ^ 1, minlength=flows)
    attempts = np.bincount(segments.flow[opening], minlength=flows)
    _, first = np.unique(segments.flow[opening], return_index=True)
    for row in np.sort(opening[first]).tolist():
        flow = int(segments.flow[row])
        tries, back = int(attempts[flow]), int(answered[flow])
        ms = _first_ack_ms(segments, lanes.rows(flow), row) if tries == back == 1 else None
        answer = lanes.rows(flow ^ 1)[:1]
        refused = not back and bool((segments.flags[answer] & RST).any())
        yield Connect(flow, int(segments.time_ns[row]), tries, bool(back), refused, ms)


def _first_ack_ms(segments: Segments, rows: Ints, opening: int) -> float | None:
    """Measure the time from a SYN to its sender's first ACK."""
    for row in rows[:FIRST_ACK_WITHIN].tolist():
        if segments.flags[row] & (SYN | ACK | RST) == ACK:
            if row < opening:  # captured in a different order than sent
                return None
            return int(segments.time_ns[row] - segments.time_ns[opening]) / 1e6
    return None
