"""Count packets as the 2019 study did: by the first op name in each packet.

The study's notebook searched each packet for the letters ``op`` followed by one of nine names, in a fixed
order, took the first match, and called all other packets with payload "data". (It detected add-keys, but a
swallowed error prevented counting them; here they are counted.) Compared with ``composition`` this shows the
method's error: a batch counts once, a message in several packets counts as data, and the result changes with
offloads.

All segments with payload are concatenated flow by flow into one line of bytes. Op names are positions on that
line and packets are intervals of it, so the same bytes can be counted as if they had been segmented
differently.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from daskwire.base.arrays import Ints
from daskwire.base.schema import Table
from daskwire.decoder.capture import Capture
from daskwire.decoder.net.segments import PSH, Segments, by_flow

NAMES = (  # in the notebook's order
    "heartbeat_worker", "task-finished", "get_data", "delete-data", "add-keys",
    "steal-response", "compute-task", "key-in-memory", "steal-request",
)  # fmt: skip
OTHERS = "data"
# "op", a MessagePack length (which the notebook's decoding dropped), and a name
_PATTERN = re.compile(b"op[\x80-\xff]*(" + b"|".join(name.encode() for name in NAMES) + b")")
_RANK = {name.encode(): rank for rank, name in enumerate(NAMES)}


@dataclass(frozen=True)
class _Line:
    """Concatenated segments with payload: rows, positions (and the end), and which begin a write."""

    row: Ints
    at: Ints
    begins: Ints


@dataclass(frozen=True)
class Names:
    """The op names in a capture's payload: index in NAMES, begin and end on the line."""

    capture: Capture
    line: _Line
    rank: Ints
    begin: Ints
    end: Ints


def find_names(capture: Capture) -> Names:
    """Find every op name that the study searched for, except in bytes that the snaplen removed.

    This reads all captured payload: it is slow, and meant for the comparison only.
    """
    line = _concatenate(capture.segments)
    return Names(capture, line, *_search(capture, line))


def packets_by_first_op(names: Names, segment_bytes: int | None = None) -> Table:
    """Count packets with payload by their first op, "data" for the rest.

    Args:
        names: the op names of a capture.
        segment_bytes: count as if each write had been segmented into packets of this size, as a NIC does
            with segmentation offload (1448 at an MTU of 1500), or as the offload leaves it (up to 65160).
            None counts the captured packets.

    Returns:
        A table with the columns source, destination, op, packets.
    """
    line = names.line
    begin = line.at[:-1] if segment_bytes is None else _cut(line, segment_bytes)
    packet = np.searchsorted(begin, names.begin, side="right") - 1
    whole = names.end <= np.append(begin, line.at[-1])[packet + 1]  # not names that span two packets
    rank = np.full(len(begin), len(NAMES))
    np.minimum.at(rank, packet[whole], names.rank[whole])
    flow = names.capture.segments.flow[line.row[np.searchsorted(line.at, begin, side="right") - 1]]
    return _table(names.capture, flow.astype(np.int64), rank)


def _concatenate(segments: Segments) -> _Line:
    """Concatenate the segments. A segment continues a write if its predecessor had no PSH flag."""
    row = np.flatnonzero(segments.length)
    row = row[by_flow(segments.flow[row])]
    length = segments.length[row]
    follows = np.zeros(len(row), bool)
    follows[1:] = (
        (segments.flow[row][1:] == segments.flow[row][:-1])
        & (segments.seq[row][1:] == segments.seq[row][:-1] + length[:-1])
        & (segments.flags[row][:-1] & PSH == 0)
    )
    return _Line(row, np.append(0, np.cumsum(length, dtype=np.int64)), np.flatnonzero(~follows))


def _search(capture: Capture, line: _Line) -> tuple[Ints, Ints, Ints]:
    """Return the index in NAMES, the begin and the end of each name on the line."""
    size = capture.segments.captured[line.row]
    cut = np.flatnonzero(size < capture.segments.length[line.row]) + 1  # cannot be joined to the next segment
    parts = np.append(np.union1d(line.begins, cut[cut < len(line.row)]), len(line.row)).tolist()
    ranges = list(zip(capture.segments.offset[line.row].tolist(), size.tolist(), strict=True))
    names: list[tuple[int, int, int]] = []
    for begin, end in pairwise(parts):
        payload = b"".join(capture.memory.read(*part) for part in ranges[begin:end] if part[1])
        at = int(line.at[begin])
        names += [(_RANK[m[1]], at + m.start(), at + m.end()) for m in _PATTERN.finditer(payload)]
    rank, begin_at, end_at = np.array(names, np.int64).reshape(-1, 3).T
    return rank, begin_at, end_at


def _cut(line: _Line, segment_bytes: int) -> Ints:
    """Return where packets begin if each write is segmented into ``segment_bytes``."""
    begin = line.at[line.begins]
    pieces = -(-np.diff(np.append(begin, line.at[-1])) // segment_bytes)
    first = np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.asarray(np.repeat(begin, pieces) + (np.arange(len(first)) - first) * segment_bytes)


def _table(capture: Capture, flow: Ints, rank: Ints) -> Table:
    ops = (*NAMES, OTHERS)
    count: Counter[tuple[str, str, str]] = Counter()
    codes, packets = np.unique(flow * len(ops) + rank, return_counts=True)
    for code, number in zip(codes.tolist(), packets.tolist(), strict=True):
        flow_number, op = divmod(code, len(ops))
        count[capture.sources[flow_number], capture.sources[flow_number ^ 1], ops[op]] += number
    return {
        "source": [source for source, _, _ in sorted(count)],
        "destination": [destination for _, destination, _ in sorted(count)],
        "op": [op for _, _, op in sorted(count)],
        "packets": [count[key] for key in sorted(count)],
    }
