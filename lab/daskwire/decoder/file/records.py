"""The records of capture files: where they begin, and the packets in them as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from math import isqrt

import numpy as np

from daskwire.base.arrays import U32, Array, Flags, Ints, overlapping

# The output of every capture format: packets as arrays, and the progress of reading a file.

Advise = Callable[[int, int, bool], None]  # (start, stop, sparse): these bytes are read next
SPARSE = 16384  # mean record size, bytes, above which reading only the headers is faster than reading all
MAX_PACKET = 1 << 24
PEEK = 68  # bytes of each packet that are read with the record header: enough for TCP with timestamps
MIN_STEP_NS, MAX_STEPS = 1_000_000_000, 4  # of a clock that was set back
AT_ONCE = 1 << 14  # packets per batch: their headers stay in the processor's cache


@dataclass(frozen=True)
class Records:
    """Packets of one link type, as arrays of equal length.

    Attributes:
        time_ns: capture time, nanoseconds since 1970.
        offset: position of the packet's data in the file.
        captured: bytes in the file.
        length: bytes on the wire.
        peek: the first PEEK bytes in the file from ``offset`` on.
        link: pcap's number of the link type.
        interface: number of the interface within the file (pcapng), else 0.
    """

    time_ns: Ints
    offset: Ints
    captured: U32
    length: U32
    peek: Array
    link: int
    interface: int = 0

    def take(self, which: Flags | slice) -> Records:
        """Select packets by a mask or a slice."""
        columns = {
            f.name: getattr(self, f.name)[which] for f in fields(self) if f.name not in ("link", "interface")
        }
        return replace(self, **columns)


@dataclass
class Progress:
    """How far a file was read.

    Attributes:
        position: where reading continues.
        problem: why reading stopped before the end of the file, None if it did not.
        damaged: the problem is damage, not a missing end, so more bytes will not solve it.
        dropped: packets that the capturing program reported as lost (pcapng only).
        disordered: packets that are older than their predecessor.
        steps_back: where time goes back by MIN_STEP_NS or more: position of the packet, nanoseconds. Empty if
            there are more than MAX_STEPS: then the file is in no order at all.
        set_back_ns: by how much its clock was set back during the recording, before that was corrected.
        offset_ns: by how much the clock of the file was ahead of the first file's, before it was aligned.
        unaligned: an earlier file is from the other side of a NAT, and the clocks could not be aligned.
        secrets: TLS key log in the file (pcapng only).
        skipped: packets without a time or a link type, by reason.
        section: the pcapng reader's state between calls.
        last_ns: time of the last packet.
    """

    position: int = 0
    problem: str | None = None
    damaged: bool = False
    dropped: int | None = None
    disordered: int = 0
    steps_back: list[tuple[int, int]] = field(default_factory=list)
    set_back_ns: int = 0
    offset_ns: int = 0
    unaligned: bool = False
    secrets: bytes = b""
    skipped: Counter[str] = field(default_factory=Counter)
    section: object = None
    last_ns: int = 0
    _is_unordered: bool = False

    def note_times(self, records: Records) -> None:
        """Count the disorder among the next packets of the file."""
        advance_ns = np.diff(records.time_ns, prepend=self.last_ns)
        self.disordered += int(np.count_nonzero(advance_ns < 0))
        steps = np.flatnonzero(advance_ns <= -MIN_STEP_NS)
        if len(steps) and not self._is_unordered:
            self.steps_back += zip(records.offset[steps].tolist(), (-advance_ns[steps]).tolist(), strict=True)
            self._is_unordered = len(self.steps_back) > MAX_STEPS
            if self._is_unordered:
                self.steps_back.clear()
        self.last_ns = int(records.time_ns[-1])


def disorder(time_ns: Ints) -> int:
    """Count the packets that are older than their predecessor."""
    return int(np.count_nonzero(time_ns[1:] < time_ns[:-1]))


def no_advice(start: int, stop: int, sparse: bool) -> None:
    """Ignore the advice: the bytes are in memory already."""


def batches(index: Index) -> Iterator[tuple[Ints, int]]:
    """Yield the positions of up to AT_ONCE records, and where the record after them begins."""
    for begin in range(0, len(index.position), AT_ONCE):
        rest = index.position[begin + AT_ONCE :]
        yield index.position[begin : begin + AT_ONCE], int(rest[0]) if len(rest) else index.end


# Find where the records of a capture file begin, thousands at a time.
#
# A capture is a linked list on disk: each record contains its length, and only that gives the start of the
# next one. Following the list in Python costs a third of a microsecond per record. Instead, many walkers
# start
# at once, evenly spaced over a block of the file, each at a position that looks like a record, and NumPy
# advances all of them in one operation. Every walker must arrive exactly where the next walker started.
# That
# proves the whole index. If one does not, the block is walked record by record.

BLOCK = 1 << 28  # bytes of the file that are indexed and then parsed together
SERIAL_BELOW = 4000  # records; below this number walking one by one is faster
UNEVEN = 16  # give up when a walker has this many times the mean distance to go: this bounds the memory
SEARCH = 1 << 17  # bytes searched for the start of a record
SAMPLES = 16  # positions at which the mean record size is sampled
AGREEING = 2  # consecutive records that must be plausible before a position counts as a start


@dataclass(frozen=True)
class Layout:
    """How records are chained: ``next = position + overhead + word at (position + field)``.

    Attributes:
        order: byte order, ``<`` or ``>``.
        field: offset of the length word in a record, bytes.
        overhead: bytes of a record that its length does not count.
        header: bytes to read at the start of each record.
        pattern: returns a byte pattern that similar records contain, and its offset in a record.
        follow: returns the position after a valid record, -1 if the record is invalid.
    """

    order: str
    field: int
    overhead: int
    header: int
    pattern: Callable[[memoryview, int], tuple[bytes, int]]
    follow: Callable[[memoryview, int], int]


@dataclass(frozen=True)
class Index:
    """Positions of records, and the position where the walk ended."""

    position: Ints
    end: int


def diagnose(
    view: memoryview, position: int, layout: Layout, what: str, least_bytes: int
) -> tuple[str, bool]:
    """Explain why nothing valid begins here, and whether the file is damaged (True) or ends early (False).

    Args:
        what: what a file of this format consists of, as messages call it.
        least_bytes: of the smallest one.
    """
    rest = len(view) - position
    if rest < least_bytes or layout.follow(view, position) > len(view):
        return f"truncated: the last {what}, at byte {position}, is incomplete", False
    return f"damaged at byte {position}: no valid {what} there; {rest} bytes were not read", True


def index(view: memoryview, start: int, stop: int, layout: Layout) -> Index:
    """Index all records that begin in ``[start, stop)``.

    The walk ends at the first record that begins at or after ``stop``, is cut off by the end of the file, or
    is invalid. The caller distinguishes these cases.
    """
    mean = mean_record(view, start, stop, layout)
    expected = (stop - start) // mean
    if expected >= SERIAL_BELOW and mean <= 16384:
        # one step of all walkers costs about twice as much as finding the start of one walker
        together = _lockstep(view, start, stop, layout, isqrt(2 * expected), expected)
        if together is not None:
            rest = _serial(view, together.end, stop, layout)  # the last records of the file
            return Index(np.append(together.position, rest.position), rest.end)
    return _serial(view, start, stop, layout)


def heads(view: memoryview, positions: Ints, layout: Layout) -> Array:
    """Read the headers of some records, one value each, padded with zeros beyond the end of the file."""
    size = layout.header
    safe = int(np.searchsorted(positions, len(view) - size, side="right"))
    result = overlapping(view, 0, size)[positions[:safe]] if safe else np.zeros(0, f"V{size}")
    if safe < len(positions):
        rest = (bytes(view[at : at + size]).ljust(size, b"\0") for at in positions[safe:].tolist())
        result = np.append(result, np.frombuffer(b"".join(rest), f"V{size}"))
    return result


def mean_record(view: memoryview, start: int, stop: int, layout: Layout) -> int:
    """Estimate the mean size of a record, in bytes, from a few records at several positions."""
    pattern, pattern_at = layout.pattern(view, start)
    size = count = 0
    for sample in [start, *np.linspace(start, stop, SAMPLES, endpoint=False)[1:].astype(np.int64).tolist()]:
        position = sample if sample == start else _find(view, sample, stop, layout, pattern, pattern_at)
        for _ in range(SAMPLES):
            following = layout.follow(view, position) if 0 <= position < stop else -1
            if following < 0:
                break
            size, count, position = size + following - position, count + 1, following
    return max(size // max(count, 1), 1)


def _serial(view: memoryview, start: int, stop: int, layout: Layout) -> Index:
    positions = []
    position, size, follow = start, len(view), layout.follow
    while position < stop:
        following = follow(view, position)
        if following < 0 or following > size:
            break
        positions.append(position)
        position = following
    return Index(np.array(positions, dtype=np.int64), position)


def _lockstep(
    view: memoryview, start: int, stop: int, layout: Layout, walkers: int, expected: int
) -> Index | None:
    """Advance all walkers together; return None when they do not meet or one leaves the file.

    Only the length word is read, one byte at a time: NumPy gathers single bytes in half the time that it
    needs for unaligned words. Checking for arrival every few steps instead of after each is cheaper; the
    steps that a walker took beyond its goal are discarded. A walker that has left the file stays on the last
    byte.
    """
    stop = min(stop, len(view) - layout.field - 4)  # the last position where a length can be read
    starts = _starts(view, start, stop, layout, walkers)
    file_bytes = np.frombuffer(view, np.uint8)
    length_bytes = [file_bytes[layout.field + i :] for i in range(4)]
    last, goals = starts.copy(), np.append(starts[1:], stop)
    live, current = np.arange(len(starts)), starts
    steps = expected // len(starts) // 4 + 8
    parts = []
    for _ in range(4 * UNEVEN):
        path = np.empty((steps + 1, live.size), np.int64)
        path[0] = current
        columns, raw = np.empty((4, live.size), np.uint8), np.empty((live.size, 4), np.uint8)
        length = raw.view(layout.order + "u4")[:, 0]
        for current, following in pairwise(path):
            for source, column in zip(length_bytes, columns, strict=True):
                source.take(current, out=column, mode="clip")
            raw[...] = columns.T
            np.add(current, length, out=following)
            following += layout.overhead
        before_goal = path < goals[live]
        parts.append(path[:-1][before_goal[:-1]])
        arrived = np.flatnonzero(~before_goal[-1])
        last[live[arrived]] = path[before_goal[:, arrived].sum(axis=0), arrived]
        live, current = live[before_goal[-1]], path[-1, before_goal[-1]]
        if not live.size:
            break
    if live.size or not np.array_equal(last[:-1], starts[1:]):
        return None
    position = np.sort(np.concatenate(parts))
    end = layout.follow(view, int(position[-1]))
    return Index(position, end) if 0 <= end <= len(view) else Index(position[:-1], int(position[-1]))


def _starts(view: memoryview, start: int, stop: int, layout: Layout, walkers: int) -> Ints:
    """Choose the walkers' starts: ``start``, and a plausible record near each evenly spaced position."""
    pattern, pattern_at = layout.pattern(view, start)
    starts = [start]
    for target in np.linspace(start, stop, walkers, endpoint=False)[1:].astype(np.int64).tolist():
        position = _find(view, max(target, starts[-1] + 1), stop, layout, pattern, pattern_at)
        if position > starts[-1]:
            starts.append(position)
    return np.array(starts, dtype=np.int64)


def _find(view: memoryview, begin: int, stop: int, layout: Layout, pattern: bytes, pattern_at: int) -> int:
    """Find the first position from ``begin`` on where several valid records follow; -1 if none is near."""
    chunk = 2048
    while chunk <= SEARCH:
        window = bytes(view[begin : min(begin + chunk, stop)])
        at = window.find(pattern, pattern_at)
        while at >= 0:
            if _agree(view, begin + at - pattern_at, layout):
                return begin + at - pattern_at
            at = window.find(pattern, at + 1)
        chunk *= 8
    return -1


def _agree(view: memoryview, position: int, layout: Layout) -> bool:
    for _ in range(AGREEING):
        position = layout.follow(view, position)
        if position < 0:
            return False
    return True
