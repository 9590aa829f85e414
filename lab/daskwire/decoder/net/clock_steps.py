"""Clocks that were set back while a file was recorded.

Sorted by time, what was recorded after such a step would come before what was recorded before it, and every
connection would end before it begins. A file that was merged from several ones also has packets that are
older than their predecessors. The difference is in TCP: after a step, connections go on.
"""

from __future__ import annotations

import numpy as np

from daskwire.base.arrays import Ints
from daskwire.decoder.file.reading import File
from daskwire.decoder.net.segments import Segments


def undo_steps_back(segments: Segments, file: File, base: int) -> None:
    """Shift the times after each step of a file's clock so that they follow those before it.

    Args:
        segments: segments of all files.
        file: the file. What was corrected is noted in its progress.
        base: address of the file, see ``daskwire.decoder.file.memory``.
    """
    own = np.flatnonzero((segments.offset >= base) & (segments.offset <= base + file.bytes))
    own = own[np.argsort(segments.offset[own], kind="stable")]
    offset, progress = segments.offset[own], file.progress
    for position, back_ns in progress.steps_back:
        first = int(np.searchsorted(offset, base + position))
        if _goes_on(segments, own[:first], own[first:]):
            segments.time_ns[own[first:]] += back_ns
            progress.set_back_ns += back_ns
            progress.disordered -= 1


def _goes_on(segments: Segments, before: Ints, after: Ints) -> bool:
    """Return whether most flows that both parts contain have later sequence numbers in the second part."""
    last = dict(zip(segments.flow[before].tolist(), segments.seq[before].tolist(), strict=True))
    backwards = slice(None, None, -1)
    first = dict(
        zip(segments.flow[after][backwards].tolist(), segments.seq[after][backwards].tolist(), strict=True)
    )
    shared = [flow for flow in first if flow in last]
    advance = np.array([first[flow] - last[flow] for flow in shared], np.int64).astype(np.int32)
    return bool((advance > 0).sum() > (advance < 0).sum())
