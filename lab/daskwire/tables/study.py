"""What the 2019 study's own method would have counted: packets by the first op name found in them.

Its notebook looked, packet by packet, for the letters ``op`` followed by one of nine names in a fixed order,
took the first that matched, and called all other packets with payload "data" (add-keys it found, but a
swallowed error kept it from counting them; here they are counted). Beside ``composition`` this
shows the method's error: batches count once, split messages not at all, and the result changes with offloads.

All segments with payload are laid end to end on one line, flow by flow. Names are places on that line and
packets are borders on it, so the same bytes can be counted as if they had been cut elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from daskwire.arrays import Ints
from daskwire.capture import Capture
from daskwire.net.segments import PSH, Segments, by_flow
from daskwire.schema import Table

NAMES = (  # in the order of the notebook
    "heartbeat_worker", "task-finished", "get_data", "delete-data", "add-keys",
    "steal-response", "compute-task", "key-in-memory", "steal-request",
)  # fmt: skip
OTHERS = "data"
# a name after "op", between them only a MessagePack length, which the notebook's decoding dropped
_PATTERN = re.compile(b"op[\x80-\xff]*(" + b"|".join(name.encode() for name in NAMES) + b")")
_RANK = {name.encode(): rank for rank, name in enumerate(NAMES)}


@dataclass(frozen=True)
class _Line:
    """Segments with payload end to end: their rows, their places (and the end), which begin a write."""

    row: Ints
    at: Ints
    begins: Ints


@dataclass(frozen=True)
class Names:
    """The op names in a capture's payload: rank among NAMES, where each begins and ends on the line."""

    capture: Capture
    line: _Line
    rank: Ints
    begin: Ints
    end: Ints


def find_names(capture: Capture) -> Names:
    """Every op name that the study looked for.

    Names in bytes that the snaplen cut off are not found. Looks at every captured payload byte: slower than
    all else here, and meant for the comparison only.
    """
    line = _lay(capture.segments)
    return Names(capture, line, *_found(capture, line))


def packets_by_first_op(names: Names, segment_bytes: int | None = None) -> Table:
    """Packets with payload by the first op found, "data" for the rest: source, destination, op, packets.

    With ``segment_bytes`` the packets are not those captured: what was pushed together is joined and cut anew
    into so many bytes, as a network card does with the super-packets that segmentation offload hands to it
    (1448 at the usual MTU), or as the offload would have left it (65160 at most).
    """
    line = names.line
    begin = line.at[:-1] if segment_bytes is None else _cut(line, segment_bytes)
    packet = np.searchsorted(begin, names.begin, side="right") - 1
    whole = names.end <= np.append(begin, line.at[-1])[packet + 1]  # a name across a border is not found
    rank = np.full(len(begin), len(NAMES))
    np.minimum.at(rank, packet[whole], names.rank[whole])
    flow = names.capture.segments.flow[line.row[np.searchsorted(line.at, begin, side="right") - 1]]
    return _table(names.capture, flow.astype(np.int64), rank)


def _lay(segments: Segments) -> _Line:
    """A write goes on where a segment follows its flow's last one that was not pushed."""
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


def _found(capture: Capture, line: _Line) -> tuple[Ints, Ints, Ints]:
    """Each name on the line: its rank among NAMES, where it begins, where it ends."""
    size = capture.segments.captured[line.row]
    cut = np.flatnonzero(size < capture.segments.length[line.row]) + 1  # the next one cannot be joined
    parts = np.append(np.union1d(line.begins, cut[cut < len(line.row)]), len(line.row)).tolist()
    places = list(zip(capture.segments.offset[line.row].tolist(), size.tolist(), strict=True))
    names: list[tuple[int, int, int]] = []
    for begin, end in pairwise(parts):
        said = b"".join(capture.memory.read(*place) for place in places[begin:end] if place[1])
        at = int(line.at[begin])
        names += [(_RANK[m[1]], at + m.start(), at + m.end()) for m in _PATTERN.finditer(said)]
    rank, place, end_at = np.array(names, np.int64).reshape(-1, 3).T
    return rank, place, end_at


def _cut(line: _Line, segment_bytes: int) -> Ints:
    """Where packets begin when each write is cut into pieces of so many bytes."""
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
