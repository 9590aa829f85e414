"""Which files belong to one recording, and how far the clocks of several files are apart.

Files that share packets were recorded at different capture points; files that share none are parts of one
recording (rotation), or unrelated. The clocks of two machines differ: a packet arrives at the second point by
its transit time later, a packet in the opposite direction earlier, so the mean of both is the offset. It is
corrected only if packets would otherwise travel back in time.

A NAT between two capture points changes addresses and ports, but not sequence numbers and timestamps, so
files without a common packet are compared once more without the flow.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from daskwire.base.arrays import U64, Ints
from daskwire.decoder.net.segments import ACK, SYN, Segments

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
