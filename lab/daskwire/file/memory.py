"""Several files as one range of addresses: offsets in all tables are addresses in it."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from daskwire.arrays import Ints, overlapping


class Memory:
    """Several byte regions behind one range of addresses."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._views: list[memoryview] = []
        self._top = 0

    def add(self, view: memoryview, room: int = 0) -> int:
        """Append a region that may grow to ``room`` bytes; gives the address of its first byte."""
        base = self._top
        self._bases.append(base)
        self._views.append(view)
        self._top += max(len(view), room) + 1
        return base

    def replace(self, base: int, view: memoryview) -> None:
        """A longer mapping of a region (its file grew)."""
        self._views[self._bases.index(base)] = view

    def read(self, address: int, size: int) -> memoryview:
        """The bytes at an address; they never cross regions."""
        which = bisect_right(self._bases, address) - 1 if len(self._bases) > 1 else 0
        start = address - self._bases[which]
        return self._views[which][start : start + size]

    def words(self, address: Ints, count: int) -> npt.NDArray[np.uint64]:
        """``count`` little-endian 64-bit words at each address, an ``(n, count)`` array; all must lie in
        the file.
        """
        result = np.zeros((len(address), count), np.uint64)
        for base, view in zip(self._bases, self._views, strict=True):
            size = len(view) - 8 * count + 1
            mine = (address >= base) & (address < base + size)
            if size > 0 and mine.any():
                found = overlapping(view, 0, 8 * count)[address[mine] - base]
                result[mine] = found.view("<u8").reshape(-1, count)
        return result
