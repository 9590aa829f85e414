"""Find repeated captures of the same packet: at one capture point, or at several ones.

A bridge that floods, or a capture on several interfaces without their names, repeats packets at one point.
With several capture points, one of them has precedence for each connection and the others only fill its gaps:
with offloads, the same bytes may be segmented differently at two points.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import Flags, Ints
from daskwire.decoder.net.segments import FIN, STAMPED, SYN, Lanes, Segments

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
