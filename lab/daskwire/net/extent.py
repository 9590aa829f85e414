"""How much of each stream was sent while the capture ran, and how much of that it does not hold.

What a capture holds of a flow shows its payload; what the receiver acknowledged shows that there was more: in
holes, behind the last segment, or in a whole direction of which no packet was captured. Where a connection
began before the capture, its streams count from the first byte that is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskwire.arrays import Flags, Ints
from daskwire.net.segments import ACK, FIN, RST, SYN, Lanes, Segments
from daskwire.net.tcp import Pieces

LAST = 4  # ACKs of a flow that are looked at for the highest: a few may change places
PHANTOM = 1  # number of bytes that a FIN takes in TCP's numbers


@dataclass(frozen=True)
class Extent:
    """Positions and sizes in stream bytes, per flow.

    ``begin`` and ``end`` bound what is known of the stream. ``missing`` bytes are not in the capture; of
    these, ``lost`` were acknowledged by the receiver. ``hole`` is the position of the first missing byte.
    """

    begin: Ints
    end: Ints
    missing: Ints
    lost: Ints
    hole: Ints


@dataclass(frozen=True)
class Lives:
    """Per connection whether its opening was captured, and whether its end was."""

    opened: Flags
    closed: Flags


def lives(segments: Segments, connections: int) -> Lives:
    """A SYN opens, on either side; a FIN or RST closes."""
    opened, closed = np.zeros(connections, bool), np.zeros(connections, bool)
    opened[segments.flow[segments.flags & SYN != 0] >> 1] = True
    closed[segments.flow[segments.flags & (FIN | RST) != 0] >> 1] = True
    return Lives(opened, closed)


def extents(segments: Segments, lanes: Lanes, pieces: Pieces) -> Extent:
    """The extent of every flow."""
    columns = Extent(*(np.zeros(len(lanes.begin) - 1, np.int64) for _ in range(5)))
    place = {flow: index for index, flow in enumerate(pieces.flow.tolist())}
    for flow in range(len(lanes.begin) - 1):
        index = place.get(flow)
        row = _unseen(segments, lanes, flow) if index is None else _seen(segments, lanes, pieces, index)
        for column, value in zip(vars(columns).values(), row, strict=True):
            column[flow] = value
    return columns


def _seen(segments: Segments, lanes: Lanes, pieces: Pieces, index: int) -> tuple[int, ...]:
    """Extent of a flow of which payload was captured."""
    flow, part = int(pieces.flow[index]), slice(int(pieces.begin[index]), int(pieces.begin[index + 1]))
    start, length = pieces.start[part], pieces.length[part]
    begin, last = int(start[0]), int(start[-1] + length[-1])
    if pieces.opened[index]:
        begin = min(begin, 0)
    acks = _acks(segments, lanes.rows(flow ^ 1)[-LAST:])
    reached = max((_step(segments.ack[row], int(pieces.zero[index]) + last) for row in acks), default=0)
    behind = reached if reached > PHANTOM else 0
    ends = start + length
    before = np.concatenate([[begin], ends[:-1]])
    gap = np.flatnonzero(start > before)
    if not len(gap):
        return begin, last + behind, behind, behind, last
    top = int(_places(segments, lanes, flow, int(pieces.zero[index])).max(initial=0))
    lost = int(np.clip(np.minimum(start[gap], top) - before[gap], 0, None).sum())
    missing = int((start - before)[gap].sum())
    return begin, last + behind, missing + behind, lost + behind, int(before[gap[0]])


def _unseen(segments: Segments, lanes: Lanes, flow: int) -> tuple[int, ...]:
    """Extent of a flow without payload in the capture: what its receiver acknowledged all the same."""
    acks = _acks(segments, lanes.rows(flow ^ 1))
    if not len(acks):
        return 0, 0, 0, 0, 0
    size = int(_places(segments, lanes, flow, _zero(segments, lanes, flow))[-LAST:].max())
    size = size if size > PHANTOM else 0
    return 0, size, size, size, 0


def acknowledged(segments: Segments, lanes: Lanes, pieces: Pieces, flow: int) -> Ints:
    """The stream positions that ACKs of a flow name, ascending, each once."""
    index = np.flatnonzero(pieces.flow == flow)
    zero = int(pieces.zero[index[0]]) if len(index) else _zero(segments, lanes, flow)
    return np.unique(_places(segments, lanes, flow, zero))


def _zero(segments: Segments, lanes: Lanes, flow: int) -> int:
    """Sequence number of position 0 of a flow without payload in the capture."""
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
    """How far a sequence number lies behind another one."""
    step = (int(number) - zero) & 0xFFFFFFFF
    return step - (1 << 32) if step >> 31 else step


def _places(segments: Segments, lanes: Lanes, flow: int, zero: int) -> Ints:
    """Stream position that each ACK of a flow names, in the order of capture."""
    ack = segments.ack[_acks(segments, lanes.rows(flow ^ 1))]
    steps = np.diff(ack, prepend=ack[:1]).view(np.int32).astype(np.int64)
    places: Ints = np.cumsum(steps) + (_step(ack[0], zero) if len(ack) else 0)
    return places
