"""Where the records of a capture file begin, found thousands at a time.

A capture is a linked list on disk: each record says how long it is, so the next is only known after it.
Walking it one by one costs a third of a microsecond per record in Python. Here many walkers start at once,
evenly spaced over a block of the file, each at a place that looks like a record, and NumPy advances all of
them in one operation. A walker must end exactly where the next one began; that proves the whole index. If
any does not, the block is walked one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt

import numpy as np

from daskwire.arrays import Array, Ints, overlapping

BLOCK = 1 << 28  # bytes of file that are indexed, and then parsed, at a time
SERIAL_BELOW = 4000  # records in a block for which walking one by one is the quicker way
UNEVEN = 16  # a walker that has this many times the mean to pass ends the attempt: memory is bounded
SEARCH = 1 << 17  # bytes looked through for the start of a record
PLACES = 16  # where the mean record size is sampled
AGREEING = 2  # successive records that must look right for a place to count as a start


@dataclass(frozen=True)
class Layout:
    """How records are chained: ``next = position + overhead + word at (position + field)``."""

    order: str  # "<" or ">"
    field: int
    overhead: int
    header: int  # bytes at the beginning of a record that are worth reading
    mark: Callable[[memoryview, int], tuple[bytes, int]]  # byte pattern of a record like this, where in it
    follow: Callable[[memoryview, int], int]  # position after a sane record, -1 if it is not sane


@dataclass(frozen=True)
class Index:
    """Records found: their positions, and where the walk ended."""

    position: Ints
    end: int


def index(view: memoryview, start: int, stop: int, layout: Layout) -> Index:
    """All records that begin in ``[start, stop)``.

    The walk ends at the first record that begins at or after ``stop``, that the file does not hold whole,
    or that is not sane; the caller tells these apart.
    """
    mean = mean_record(view, start, stop, layout)
    expected = (stop - start) // mean
    if expected >= SERIAL_BELOW and mean <= 16384:
        # a step of all walkers costs about twice what finding a start for one does
        found = _lockstep(view, start, stop, layout, isqrt(2 * expected), expected)
        if found is not None:
            rest = _serial(view, found.end, stop, layout)  # the last few at the file's end
            return Index(np.append(found.position, rest.position), rest.end)
    return _serial(view, start, stop, layout)


def heads(view: memoryview, positions: Ints, layout: Layout) -> Array:
    """The beginnings of some records, each as one value; zeros stand for what lies behind the end of the
    file.
    """
    size = layout.header
    safe = int(np.searchsorted(positions, len(view) - size, side="right"))
    found = overlapping(view, 0, size)[positions[:safe]] if safe else np.zeros(0, f"V{size}")
    if safe < len(positions):
        rest = (bytes(view[at : at + size]).ljust(size, b"\0") for at in positions[safe:].tolist())
        found = np.append(found, np.frombuffer(b"".join(rest), f"V{size}"))
    return found


def mean_record(view: memoryview, start: int, stop: int, layout: Layout) -> int:
    """Mean size of a record, from a few records at each of several places."""
    mark, mark_at = layout.mark(view, start)
    size = count = 0
    for place in [start, *np.linspace(start, stop, PLACES, endpoint=False)[1:].astype(np.int64).tolist()]:
        position = place if place == start else _find(view, place, stop, layout, mark, mark_at)
        for _ in range(PLACES):
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
    """All walkers at once; None when they do not meet or one leaves the file.

    Nothing but the word with a record's length is looked at, byte by byte: NumPy takes single bytes from
    anywhere in half the time that it needs for words that are not aligned. Walkers are not stopped at their
    goal but every few steps, which is cheaper: what they pass in the next one's stretch is thrown away. One
    that has left the file goes on over the last byte, again and again.
    """
    stop = min(stop, len(view) - layout.field - 4)  # the last place where a length can be read
    starts = _starts(view, start, stop, layout, walkers)
    every = np.frombuffer(view, np.uint8)
    length_bytes = [every[layout.field + i :] for i in range(4)]
    last, goals = starts.copy(), np.append(starts[1:], stop)
    live, here = np.arange(len(starts)), starts
    steps = expected // len(starts) // 4 + 8
    found = []
    for _ in range(4 * UNEVEN):
        place = np.empty((steps + 1, live.size), np.int64)
        place[0] = here
        taken, raw = np.empty((4, live.size), np.uint8), np.empty((live.size, 4), np.uint8)
        length = raw.view(layout.order + "u4")[:, 0]
        for here, there in pairwise(place):
            for column, part in zip(length_bytes, taken, strict=True):
                column.take(here, out=part, mode="clip")
            raw[...] = taken.T
            np.add(here, length, out=there)
            there += layout.overhead
        mine = place < goals[live]
        found.append(place[:-1][mine[:-1]])
        arrived = np.flatnonzero(~mine[-1])
        last[live[arrived]] = place[mine[:, arrived].sum(axis=0), arrived]
        live, here = live[mine[-1]], place[-1, mine[-1]]
        if not live.size:
            break
    if live.size or not np.array_equal(last[:-1], starts[1:]):
        return None
    position = np.sort(np.concatenate(found))
    end = layout.follow(view, int(position[-1]))
    return Index(position, end) if 0 <= end <= len(view) else Index(position[:-1], int(position[-1]))


def _starts(view: memoryview, start: int, stop: int, layout: Layout, walkers: int) -> Ints:
    """The known first start and one plausible start near each of the other evenly spaced places."""
    mark, mark_at = layout.mark(view, start)
    found = [start]
    for place in np.linspace(start, stop, walkers, endpoint=False)[1:].astype(np.int64).tolist():
        position = _find(view, max(place, found[-1] + 1), stop, layout, mark, mark_at)
        if position > found[-1]:
            found.append(position)
    return np.array(found, dtype=np.int64)


def _find(view: memoryview, place: int, stop: int, layout: Layout, mark: bytes, mark_at: int) -> int:
    """First position from ``place`` on where several sane records follow each other; -1 if none is near."""
    chunk = 2048
    while chunk <= SEARCH:
        window = bytes(view[place : min(place + chunk, stop)])
        at = window.find(mark, mark_at)
        while at >= 0:
            if _agree(view, place + at - mark_at, layout):
                return place + at - mark_at
            at = window.find(mark, at + 1)
        chunk *= 8
    return -1


def _agree(view: memoryview, position: int, layout: Layout) -> bool:
    for _ in range(AGREEING):
        position = layout.follow(view, position)
        if position < 0:
            return False
    return True
