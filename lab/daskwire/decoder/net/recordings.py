"""Packets that were captured more than once: by several files, at several points, on both sides of a NAT."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import U64, Array, Flags, Ints
from daskwire.decoder.file.reading import File
from daskwire.decoder.net.segments import ACK, FIN, RST, STAMPED, SYN, Lanes, Segments

# Which files belong to one recording, and how far the clocks of several files are apart.
#
# Files that share packets were recorded at different capture points; files that share none are parts of one
# recording (rotation), or unrelated. The clocks of two machines differ: a packet arrives at the second
# point by
# its transit time later, a packet in the opposite direction earlier, so the mean of both is the offset. It
# is
# corrected only if packets would otherwise travel back in time.
#
# A NAT between two capture points changes addresses and ports, but not sequence numbers and timestamps, so
# files without a common packet are compared once more without the flow.

SAMPLED_SEGMENTS = 4096  # segments of a file that are searched for packets of another file
MIN_SHARED_PACKETS = 3  # two files must share so many; for their clocks, in each direction of a connection
PRIME = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Sample:
    """Some segments of a file, chosen by their content: rows, and their fingerprints in ascending order."""

    rows: Ints
    codes: U64


@dataclass(frozen=True)
class Recordings:
    """How several files belong together.

    Attributes:
        recording: (per file) number of its recording; rotated files have the same one.
        offset_ns: (per file) by how much its clock is ahead of the first file's.
        unaligned: (per file) it shares packets with a file from the other side of a NAT, but only in one
            direction, so that the difference of their clocks is unknown.
    """

    recording: list[int]
    offset_ns: list[int]
    unaligned: list[bool]


def recordings(segments: Segments, file: Ints, files: int) -> Recordings:
    """Find out which files share packets, and align their clocks.

    Args:
        segments: segments of several files.
        file: index of the file of each segment.
        files: number of files.
    """
    samples = _samples(segments, file, files)
    translated = _samples(segments, file, files, with_flow=False)
    members: list[list[int]] = []
    recording, offset_ns, unaligned = [0] * files, [0] * files, [False] * files
    for index, sample in enumerate(samples):
        shared = {other: _shared(samples[other], sample) for other in range(index)}
        separate = [other for other, (rows, _) in shared.items() if len(rows) < MIN_SHARED_PACKETS]
        for other in separate:
            rows, other_rows = _shared(translated[other], translated[index])
            is_translated = segments.flow[rows] != segments.flow[other_rows]
            shared[other] = rows[is_translated], other_rows[is_translated]
        partners = [other for other, (rows, _) in shared.items() if len(rows) >= MIN_SHARED_PACKETS]
        free = (number for number, group in enumerate(members) if not set(group) & set(partners))
        recording[index] = next(free, len(members))
        members += [[] for _ in range(recording[index] - len(members) + 1)]
        members[recording[index]].append(index)
        for other in partners:
            difference = _clock_difference(segments, *shared[other])
            unaligned[index] = difference is None and other in separate
            if difference is not None:
                offset_ns[index] = difference + offset_ns[other]
                break
    return Recordings(recording, offset_ns, unaligned)


def _samples(segments: Segments, file: Ints, files: int, with_flow: bool = True) -> list[Sample]:
    """Select up to about SAMPLED_SEGMENTS segments of each file, the same packets in all files."""
    share = np.uint64(max(1, -(-int(np.bincount(file, minlength=1).max()) // SAMPLED_SEGMENTS)))
    samples = []
    for index in range(files):
        rows = np.flatnonzero(file == index)
        if not with_flow:  # without an ACK or without data, the numbers of a packet may not be unique
            rows = rows[(segments.flags[rows] & (ACK | SYN) == ACK) & (segments.length[rows] > 0)]
        codes = _fingerprints(segments, rows, with_flow)
        selected = codes % share == 0
        unique, first, number = np.unique(codes[selected], return_index=True, return_counts=True)
        samples.append(Sample(rows[selected][first[number == 1]], unique[number == 1]))
    return samples


def _fingerprints(segments: Segments, rows: Ints, with_flow: bool) -> U64:
    """Return a hash of the numbers in each segment, the same for all captures of a packet.

    Without the flow and the IP identification, it is also the same on both sides of a NAT.
    """
    code = segments.seq[rows].astype(np.uint64) << np.uint64(32) | segments.ack[rows]
    names = ("length", "flags", "tsval")
    for name in ("flow", "ip_id", *names) if with_flow else names:
        code = (code ^ getattr(segments, name)[rows].astype(np.uint64)) * PRIME
        code ^= code >> np.uint64(29)
    return code


def _shared(first: Sample, second: Sample) -> tuple[Ints, Ints]:
    """Return the rows of the packets that two files share, in each of them."""
    _, at, other_at = np.intersect1d(first.codes, second.codes, assume_unique=True, return_indices=True)
    return first.rows[at], second.rows[other_at]


def _clock_difference(segments: Segments, rows: Ints, other_rows: Ints) -> int | None:
    """Return by how many nanoseconds the clock of the second file is ahead, None if that is unknown."""
    later_ns = segments.time_ns[other_rows] - segments.time_ns[rows]
    by_flow: defaultdict[int, list[int]] = defaultdict(list)
    for flow, difference in zip(segments.flow[rows].tolist(), later_ns.tolist(), strict=True):
        by_flow[flow].append(difference)
    median = {
        flow: float(np.median(times)) for flow, times in by_flow.items() if len(times) >= MIN_SHARED_PACKETS
    }
    pairs = np.array([(median[f], median[f ^ 1]) for f in median if f % 2 == 0 and f ^ 1 in median])
    if not len(pairs):
        return None
    impossible = pairs.prod(axis=1) > 0  # both directions arrive later, or both earlier
    return round(float(np.median(pairs.mean(axis=1)))) if impossible.mean() > 0.5 else 0


# Clocks that were set back while a file was recorded.
#
# Sorted by time, what was recorded after such a step would come before what was recorded before it, and
# every
# connection would end before it begins. A file that was merged from several ones also has packets that are
# older than their predecessors. The difference is in TCP: after a step, connections go on.

MOST_BEHIND = 0.05
"""Segments that were sent again, as a share of those that go on."""


def undo_steps_back(segments: Segments, file: File, base: int) -> list[tuple[int, int]]:
    """Shift the times after each step of a file's clock so that they follow those before it.

    Args:
        segments: segments of all files.
        file: the file. What was corrected is noted in its progress.
        base: address of the file, see ``daskwire.decoder.file.source``.

    Returns:
        From which address on times were shifted, and by how many nanoseconds.
    """
    own = np.flatnonzero((segments.offset >= base) & (segments.offset <= base + file.bytes))
    own = own[np.argsort(segments.offset[own], kind="stable")]
    offset, progress = segments.offset[own], file.progress
    shifts = []
    for position, back_ns in progress.steps_back:
        first = int(np.searchsorted(offset, base + position))
        if _goes_on(segments, own[:first], own[first:]):
            segments.time_ns[own[first:]] += back_ns
            progress.set_back_ns += back_ns
            progress.disordered -= 1
            shifts.append((base + position, back_ns))
    return shifts


def _goes_on(segments: Segments, before: Ints, after: Ints) -> bool:
    """Return whether flows go on after a step: hardly any segment repeats or precedes what was there before.

    Only segments that seem to be older than those before the step are looked at. In a merged file, later ones
    say nothing.
    """
    if not len(before) or not len(after):
        return False
    after = after[segments.time_ns[after] <= segments.time_ns[before].max()]
    flows, flow = np.unique(segments.flow[before], return_inverse=True)
    origin = np.zeros(len(flows), np.int64)
    origin[flow] = segments.seq[before]  # of each flow any one: sequence numbers wrap around
    furthest = np.full(len(flows), np.iinfo(np.int64).min)
    np.maximum.at(furthest, flow, _advance(segments.seq[before], origin[flow]))
    place = np.minimum(np.searchsorted(flows, segments.flow[after]), len(flows) - 1)
    is_shared = flows[place] == segments.flow[after]
    place, after = place[is_shared], after[is_shared]
    advance = _advance(segments.seq[after], origin[place]) - furthest[place]
    return bool((advance < 0).sum() <= MOST_BEHIND * (advance > 0).sum() and (advance > 0).any())


def _advance(seq: Array, origin: Ints) -> Ints:
    """Return how far sequence numbers are beyond others, in bytes; negative before them."""
    return (seq.astype(np.int64) - origin).astype(np.int32).astype(np.int64)


# Find repeated captures of the same packet: at one capture point, or at several ones.
#
# A bridge that floods, or a capture on several interfaces without their names, repeats packets at one
# point.
# With several capture points, one of them has precedence for each connection and the others only fill its
# gaps:
# with offloads, the same bytes may be segmented differently at two points.

COPY_DISTANCE = 4  # copies of a packet at one point are at most this many segments of their flow apart
COPY_WITHIN_NS = 100_000_000


def duplicate_packets(segments: Segments, order: Ints) -> Flags:
    """Select the repeated captures of one packet at one point: all but the first.

    A copy has the same sequence and ACK numbers, length, flags, timestamp and, for IPv4, the same
    identification. A retransmission is a new packet with a new identification.

    Args:
        segments: the segments.
        order: their rows by flow, see ``Lanes``.
    """
    result = np.zeros(len(segments), bool)
    names = ("flow", "ip_id", "seq", "ack", "length", "flags", "tsval")
    columns = [getattr(segments, name)[order] for name in names]
    time_ns = segments.time_ns[order]
    for distance in range(1, COPY_DISTANCE + 1):
        same = columns[0][distance:] == columns[0][:-distance]
        for column in columns[1:]:
            if not same.any():
                break
            same &= column[distance:] == column[:-distance]
        near = np.flatnonzero(same)
        near = near[np.abs(time_ns[near + distance] - time_ns[near]) < COPY_WITHIN_NS]
        # without an IP identification (IPv6), only the timestamp distinguishes a copy from a retransmission
        near = near[(columns[1][near] != 0) | (columns[5][near] & STAMPED != 0)]
        result[order[near + distance]] = True
    return result


def duplicates_of_points(segments: Segments, lanes: Lanes) -> Flags:
    """Select the segments whose bytes another capture point with precedence has as well."""
    result = np.zeros(len(segments), bool)
    for flow in _shared_flows(segments.flow, segments.point).tolist():
        connection = np.concatenate([lanes.rows(flow), lanes.rows(flow ^ 1)])
        number = np.bincount(segments.point[connection])
        rank = np.argsort(np.argsort(-number, kind="stable"))
        rows = lanes.rows(flow)
        result[rows] = _repeated(segments, rows, rank[segments.point[rows]])
    return result


def _shared_flows(flow: npt.NDArray[np.int32], point: npt.NDArray[np.uint16]) -> Ints:
    """Return the flows that were captured at several points."""
    codes = np.unique(flow.astype(np.int64) << 16 | point)
    flows, number = np.unique(codes >> 16, return_counts=True)
    return np.asarray(flows[number > 1], np.int64)


def _repeated(segments: Segments, rows: Ints, rank: Ints) -> Flags:
    """Select segments of a flow whose bytes (without any, whose numbers) a point of lower rank has."""
    steps = np.diff(segments.seq[rows], prepend=segments.seq[rows[:1]]).view(np.int32).astype(np.int64)
    start = np.cumsum(steps)
    end = start + segments.length[rows] + (segments.flags[rows] & (SYN | FIN) != 0)
    numbers = segments.seq[rows].astype(np.int64) << 32 | segments.ack[rows]
    result = np.zeros(len(rows), bool)
    for level in np.unique(rank)[1:].tolist():
        lower, own = rank < level, rank == level
        covered = _covered(start[lower], end[lower], start[own], end[own])
        result[own] = np.where(end[own] > start[own], covered, np.isin(numbers[own], numbers[lower]))
    return result


def _covered(start: Ints, end: Ints, first: Ints, last: Ints) -> Flags:
    """Return whether each range ``first, last`` is within the union of the ranges ``start, end``."""
    by = np.argsort(start, kind="stable")
    start, reach = start[by], np.maximum.accumulate(end[by])
    begins = np.flatnonzero(np.append(True, start[1:] > reach[:-1]))
    union_start, union_end = start[begins], reach[np.append(begins[1:], len(start)) - 1]
    index = np.searchsorted(union_start, first, side="right") - 1
    return np.asarray((index >= 0) & (union_end[np.maximum(index, 0)] >= last), np.bool_)


# Find connections that were captured on both sides of a NAT.
#
# A NAT changes addresses and ports, but not TCP's sequence numbers. Initial sequence numbers are random, so
# two
# packets with the same sequence and ACK numbers are the same packet. The translated packet is captured soon
# after the original, before its answer can arrive.

COMPARED_SEGMENTS = 32  # segments to compare, the first ones of each flow
MIN_SHARED_SEGMENTS = 3  # how many of them must be in both connections


def translations(segments: Segments, lanes: Lanes) -> list[tuple[int, int]]:
    """Return pairs of flows that are the same, one pair per connection, the one captured first in front."""
    rows = _sample(lanes)
    rows = rows[segments.flags[rows] & (ACK | RST) == ACK]
    code = segments.seq[rows].astype(np.int64) << 32 | segments.ack[rows]
    order = np.lexsort((rows, code))
    rows, code = rows[order], code[order]
    twice = np.flatnonzero((code[1:] == code[:-1]) & (segments.flow[rows[1:]] != segments.flow[rows[:-1]]))
    pairs: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for first, second in zip(rows[twice].tolist(), rows[twice + 1].tolist(), strict=True):
        low, high = sorted((int(segments.flow[first]), int(segments.flow[second])))
        pairs[low - low % 2, high ^ low % 2].append((first, second))
    return [
        _ordered(segments, pair, copies)
        for pair, copies in sorted(pairs.items())
        if len(copies) >= MIN_SHARED_SEGMENTS and _interleaved(segments, copies)
    ]


def _sample(lanes: Lanes) -> Ints:
    """Return the rows of the first SAMPLED_SEGMENTS segments of each flow."""
    index = lanes.begin[:-1, None] + np.arange(COMPARED_SEGMENTS)
    rows: Ints = lanes.order[index[index < lanes.begin[1:, None]]]
    return rows


def _interleaved(segments: Segments, copies: list[tuple[int, int]]) -> bool:
    """Return whether each packet was captured on both sides before the connection ended."""
    times_ns = segments.time_ns[np.array(copies)]
    delay_ns = np.abs(times_ns[:, 1] - times_ns[:, 0])
    return bool(delay_ns.max() < np.ptp(times_ns.min(axis=1)))


def _ordered(segments: Segments, pair: tuple[int, int], copies: list[tuple[int, int]]) -> tuple[int, int]:
    first = int(segments.flow[min(copies)[0]])
    return pair if first // 2 == pair[0] // 2 else pair[::-1]
