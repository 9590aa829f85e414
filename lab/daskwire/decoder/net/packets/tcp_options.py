"""TCP options of many segments: timestamps, and duplicate SACKs (RFC 2883)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from daskwire.base.arrays import U16, U32, Array, Flags, Ints, Signed
from daskwire.decoder.net.segments import DSACK, STAMPED

# Parse the TCP options of many segments: timestamps, and the duplicate SACK of RFC 2883.
#
# Nearly all segments have only timestamps, in the layout that all systems use; one comparison recognises
# it.
# The options of the others are walked one by one, in all segments together.

NOP_NOP_TIMESTAMP = 0x0101080A
NOP, SACK, TIMESTAMP = 1, 5, 8
EMPTY = np.zeros(0, np.int64)


def read_options(
    view: memoryview,
    at: Ints,
    size: Signed,
    tcp: Array,
    flags: U16,
) -> tuple[U32, U32, SequenceRanges]:
    """Read the timestamps of each segment, and set STAMPED and DSACK in ``flags``.

    Args:
        view: the file.
        at: position of each TCP header.
        size: captured size of each TCP header, bytes.
        tcp: the headers, including the first option as if it were a timestamp.
        flags: TCP flags; changed in place.

    Returns:
        Timestamp value and echo reply of each segment, 0 without; and the ranges of the duplicate SACKs.
    """
    is_common = (tcp["option"] == NOP_NOP_TIMESTAMP) & (size >= 32)
    tsval, tsecr = tcp["tsval"] * is_common, tcp["tsecr"] * is_common
    flags |= is_common * np.uint16(STAMPED)
    rest = np.flatnonzero((size > 20) & ~(is_common & (size == 32)))
    begin, ack = at[rest] + np.where(is_common[rest], 32, 20), tcp["ack"][rest].astype(np.uint32)
    ranges = list(_walk(view, begin, at[rest] + size[rest], rest, ack, flags, tsval, tsecr))
    columns = [np.concatenate(column) for column in zip(*ranges, strict=True)] if ranges else [EMPTY] * 3
    row, left, right = columns
    return tsval, tsecr, SequenceRanges(row.astype(np.int64), left.astype(np.uint32), right.astype(np.uint32))


def _walk(
    view: memoryview,
    cursor: Ints,
    end: Ints,
    row: Ints,
    ack: U32,
    flags: U16,
    tsval: U32,
    tsecr: U32,
) -> Iterator[tuple[Ints, U32, U32]]:
    """Walk the options from ``cursor`` to ``end``, one option of every segment per step.

    Yield rows with a duplicate SACK, and its range.
    """
    data = np.frombuffer(view, np.uint8)
    words: U32 = np.ndarray((len(view) - 3,), ">u4", view, 0, (1,))
    for _ in range(40):
        live = (cursor < end) & (data[np.minimum(cursor, len(data) - 1)] != 0)
        if not live.any():
            return
        cursor, end, row, ack = cursor[live], end[live], row[live], ack[live]
        kind = data[cursor]
        length = np.where(kind == NOP, 1, np.maximum(data[np.minimum(cursor + 1, len(data) - 1)], 2)).astype(
            np.int64
        )
        inside = cursor + length <= end
        stamp = inside & (kind == TIMESTAMP) & (length == 10)
        tsval[row[stamp]], tsecr[row[stamp]] = words[cursor[stamp] + 2], words[cursor[stamp] + 6]
        flags[row[stamp]] |= STAMPED
        sack = inside & (kind == SACK) & (length >= 10)
        if sack.any():
            duplicate = _is_duplicate(words, cursor[sack], length[sack], ack[sack])
            rows, first = row[sack][duplicate], cursor[sack][duplicate] + 2
            flags[rows] |= DSACK
            yield rows, words[first].astype(np.uint32), words[first + 4].astype(np.uint32)
        cursor = cursor + length


def _is_duplicate(words: U32, at: Ints, length: Ints, ack: U32) -> Flags:
    """Return whether the first block is below the cumulative ACK or within the second block (RFC 2883)."""
    if not len(at):
        return np.zeros(0, bool)
    left, right = words[at + 2].astype(np.uint32), words[at + 6].astype(np.uint32)
    below = (ack - right).view(np.int32) >= 0
    two = length >= 18
    second = np.where(two, at + 10, at + 2)
    left2, right2 = words[second].astype(np.uint32), words[second + 4].astype(np.uint32)
    inside = two & ((left - left2).view(np.int32) >= 0) & ((right2 - right).view(np.int32) >= 0)
    return np.asarray(below | inside, np.bool_)


# What receivers say to have received twice (D-SACK, RFC 2883).

MAX_RANGES = 1 << 20


@dataclass(frozen=True)
class SequenceRanges:
    """Ranges of sequence numbers, and for each the row of the segment that names it."""

    row: Ints
    left: U32
    right: U32


@dataclass
class DuplicateSacks:
    """The ranges that segments report, by their addresses in memory. A range may cover many segments."""

    _parts: list[tuple[Ints, U32, U32]] = field(default_factory=list)

    def note(self, address: Ints, left: U32, right: U32) -> None:
        if len(address) and sum(len(part[0]) for part in self._parts) < MAX_RANGES:
            self._parts.append((address, left, right))

    def ranges(self, address: Ints) -> SequenceRanges:
        """Return what the segments at some addresses report; the rows are positions in ``address``."""
        if not self._parts or not len(address):
            return SequenceRanges(np.zeros(0, np.int64), np.zeros(0, np.uint32), np.zeros(0, np.uint32))
        addresses, left, right = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        order = np.argsort(addresses)
        place = order[np.minimum(np.searchsorted(addresses, address, sorter=order), len(addresses) - 1)]
        row = np.flatnonzero(addresses[place] == address)
        return SequenceRanges(row, left[place[row]], right[place[row]])
