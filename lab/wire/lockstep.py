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

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
BLOCK = 1 << 28  # bytes of file that are indexed, and then parsed, at a time
SERIAL_BELOW = 4000  # records in a block for which walking one by one is the quicker way
PER_WALKER = 350  # records each walker passes: balances finding starts against calls into NumPy
SEARCH = 1 << 17  # bytes looked through for the start of a record
PLACES = 16  # where the mean record size is sampled
AGREEING = 4  # successive records that must look right for a place to count as a start


@dataclass(frozen=True)
class Layout:
    """How the records of one file are chained: ``next = position + overhead + u32 at (position + field)``."""

    order: str  # "<" or ">"
    field: int
    overhead: int
    header: int  # bytes that must be there to look at a record
    limit: int  # largest sane value of the length field
    mark: Callable[
        [memoryview, int], tuple[bytes, int]
    ]  # byte pattern of a record like this one, and where in it
    follow: Callable[[memoryview, int], int]  # position after a sane record, -1 if it is not sane


def index(view: memoryview, start: int, stop: int, layout: Layout) -> tuple[Ints, int]:
    """Positions of all records that begin in ``[start, stop)``, and where the walk ended.

    The walk ends at the first record that begins at or after ``stop``, that the file does not hold whole,
    or that is not sane; the caller tells these apart.
    """
    mean = mean_record(view, start, stop, layout)
    expected = (stop - start) // mean
    if expected >= SERIAL_BELOW and mean <= 16384:
        found = _lockstep(view, start, stop, layout, expected // PER_WALKER)
        if found is not None:
            return found
    return _serial(view, start, stop, layout)


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


def _serial(view: memoryview, start: int, stop: int, layout: Layout) -> tuple[Ints, int]:
    positions = []
    position, size, follow = start, len(view), layout.follow
    while position < stop:
        following = follow(view, position)
        if following < 0 or following > size:
            break
        positions.append(position)
        position = following
    return np.array(positions, dtype=np.int64), position


def _lockstep(
    view: memoryview, start: int, stop: int, layout: Layout, walkers: int
) -> tuple[Ints, int] | None:
    """All walkers at once; None when they do not meet or the file's end is too near."""
    if stop + layout.header > len(view):
        stop = len(view) - layout.header
    starts = _starts(view, start, stop, layout, walkers)
    lengths: npt.NDArray[np.uint32] = np.ndarray(
        (len(view) - 3,), layout.order + "u4", view, 0, (1,)
    )  # every byte position as a 32-bit number
    ends = np.append(starts[1:], stop)
    last = starts.copy()
    live = np.arange(len(starts))
    here, goal = starts, ends
    passed = []
    while live.size:
        passed.append(here)
        length = lengths[here + layout.field].astype(np.int64)
        if length.max() > layout.limit or length.min() < layout.header - layout.overhead - 16:
            return None
        there = here + length + layout.overhead
        going = there < goal
        if going.all():
            here = there
            continue
        last[live[~going]] = there[~going]
        live, here, goal = live[going], there[going], goal[going]
    if not np.array_equal(last[:-1], starts[1:]) or last[-1] > len(view):
        return None
    return np.sort(np.concatenate(passed)), int(last[-1])


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
    chunk = 4096
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
