"""Clocks that were set back while a file was recorded.

Sorted by time, what was recorded after such a step would come before what was recorded before it, and every
connection would end before it begins. A file that was merged from several ones also has packets that are
older than their predecessors. The difference is in TCP: after a step, connections go on.
"""

from __future__ import annotations

import numpy as np

from daskwire.base.arrays import Array, Ints
from daskwire.decoder.file.reading import File
from daskwire.decoder.net.segments import Segments

MOST_BEHIND = 0.05
"""Segments that were sent again, as a share of those that go on."""


def undo_steps_back(segments: Segments, file: File, base: int) -> list[tuple[int, int]]:
    """Shift the times after each step of a file's clock so that they follow those before it.

    Args:
        segments: segments of all files.
        file: the file. What was corrected is noted in its progress.
        base: address of the file, see ``daskwire.decoder.file.memory``.

    Returns:
        From which address on times were shifted, and by how many nanoseconds.
    """
    own = np.flatnonzero((segments.offset >= base) & (segments.offset <= base + file.bytes))
    own = own[np.argsort(segments.offset[own], kind="stable")]
    offset, progress = segments.offset[own], file.progress
    shifts = []
    for position, back_ns in progress.steps_back:
        first = int(np.searchsorted(offset, base + position))
        if _goes_on(segments, own[:first], own[first:]):
            segments.time_ns[own[first:]] += back_ns
            progress.set_back_ns += back_ns
            progress.disordered -= 1
            shifts.append((base + position, back_ns))
    return shifts


def _goes_on(segments: Segments, before: Ints, after: Ints) -> bool:
    """Return whether flows go on after a step: hardly any segment repeats or precedes what was there before.

    Only segments that seem to be older than those before the step are looked at. In a merged file, later ones
    say nothing.
    """
    if not len(before) or not len(after):
        return False
    after = after[segments.time_ns[after] <= segments.time_ns[before].max()]
    flows, flow = np.unique(segments.flow[before], return_inverse=True)
    origin = np.zeros(len(flows), np.int64)
    origin[flow] = segments.seq[before]  # of each flow any one: sequence numbers wrap around
    furthest = np.full(len(flows), np.iinfo(np.int64).min)
    np.maximum.at(furthest, flow, _advance(segments.seq[before], origin[flow]))
    place = np.minimum(np.searchsorted(flows, segments.flow[after]), len(flows) - 1)
    is_shared = flows[place] == segments.flow[after]
    place, after = place[is_shared], after[is_shared]
    advance = _advance(segments.seq[after], origin[place]) - furthest[place]
    return bool((advance < 0).sum() <= MOST_BEHIND * (advance > 0).sum() and (advance > 0).any())


def _advance(seq: Array, origin: Ints) -> Ints:
    """Return how far sequence numbers are beyond others, in bytes; negative before them."""
    return (seq.astype(np.int64) - origin).astype(np.int32).astype(np.int64)
