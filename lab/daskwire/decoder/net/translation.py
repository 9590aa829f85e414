"""Find connections that were captured on both sides of a NAT.

A NAT changes addresses and ports, but not TCP's sequence numbers. Initial sequence numbers are random, so two
packets with the same sequence and ACK numbers are the same packet. The translated packet is captured soon
after the original, before its answer can arrive.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from daskwire.base.arrays import Ints
from daskwire.decoder.net.segments import ACK, RST, Lanes, Segments

SAMPLED_SEGMENTS = 32  # segments to compare, the first ones of each flow
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
    index = lanes.begin[:-1, None] + np.arange(SAMPLED_SEGMENTS)
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
