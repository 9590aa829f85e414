"""What receivers say to have received twice (D-SACK, RFC 2883)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from daskwire.base.arrays import U32, Ints

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
