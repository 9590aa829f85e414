"""Connections that a capture holds twice: before and behind a NAT.

A NAT writes other addresses and ports into a packet and leaves TCP's numbers as they are. Both connections
begin with random sequence numbers, so packets with the same sequence and ACK numbers are the same packet.
What was translated is seen soon after: before the answer to it can come back.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from daskwire.arrays import Ints
from daskwire.net.segments import ACK, RST, Lanes, Segments

SAMPLE = 32  # segments looked at, the first of each flow
FEWEST = 3  # of these in both connections


def translations(segments: Segments, lanes: Lanes) -> list[tuple[int, int]]:
    """Pairs of flows that are one: the one seen first, and the same behind a NAT. One pair per connection."""
    rows = _sample(lanes)
    rows = rows[segments.flags[rows] & (ACK | RST) == ACK]
    code = segments.seq[rows].astype(np.int64) << 32 | segments.ack[rows]
    order = np.lexsort((rows, code))
    rows, code = rows[order], code[order]
    twice = np.flatnonzero((code[1:] == code[:-1]) & (segments.flow[rows[1:]] != segments.flow[rows[:-1]]))
    pairs: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for first, second in zip(rows[twice].tolist(), rows[twice + 1].tolist(), strict=True):
        one, other = sorted((int(segments.flow[first]), int(segments.flow[second])))
        pairs[one - one % 2, other ^ one % 2].append((first, second))
    return [
        _ordered(segments, pair, same)
        for pair, same in sorted(pairs.items())
        if len(same) >= FEWEST and _interleaved(segments, same)
    ]


def _sample(lanes: Lanes) -> Ints:
    """Rows of the first segments of each flow."""
    place = lanes.begin[:-1, None] + np.arange(SAMPLE)
    rows: Ints = lanes.order[place[place < lanes.begin[1:, None]]]
    return rows


def _interleaved(segments: Segments, same: list[tuple[int, int]]) -> bool:
    """Whether each packet was seen on both sides sooner than the connection came to its end."""
    times_ns = segments.time_ns[np.array(same)]
    delay_ns = np.abs(times_ns[:, 1] - times_ns[:, 0])
    return bool(delay_ns.max() < np.ptp(times_ns.min(axis=1)))


def _ordered(segments: Segments, pair: tuple[int, int], same: list[tuple[int, int]]) -> tuple[int, int]:
    first = int(segments.flow[min(same)[0]])
    return pair if first // 2 == pair[0] // 2 else pair[::-1]
