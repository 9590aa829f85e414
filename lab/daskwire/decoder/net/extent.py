"""Measure how much of each stream was sent during the capture, and how much of that is missing.

The captured segments show what is present. The receiver's ACKs show what else was sent: in holes, after the
last segment, or in a whole direction without a captured packet. If a connection began before the capture, its
streams count from the first byte in the capture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskwire.base.arrays import Flags, Ints
from daskwire.decoder.net.segments import ACK, FIN, RST, SYN, Lanes, Segments
from daskwire.decoder.net.tcp import Pieces

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
