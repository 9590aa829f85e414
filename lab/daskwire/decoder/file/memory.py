"""Map several files to one address range. Offsets in all arrays are addresses in it."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import Ints, overlapping


class Memory:
    """Byte regions (files) in one address range."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._views: list[memoryview] = []
        self._top = 0

    def add(self, view: memoryview, limit: int = 0) -> int:
        """Append a region that may grow to ``limit`` bytes; return the address of its first byte."""
        base = self._top
        self._bases.append(base)
        self._views.append(view)
        self._top += max(len(view), limit) + 1
        return base

    def regions(self) -> list[tuple[int, memoryview]]:
        """Return the address and the bytes of each region."""
        return list(zip(self._bases, self._views, strict=True))

    def replace(self, base: int, view: memoryview) -> None:
        """Replace a region by a longer mapping of the same file, after the file grew."""
        self._views[self._bases.index(base)] = view

    def read(self, address: int, size: int) -> memoryview:
        """Return ``size`` bytes at an address; they must lie in one region."""
        region = bisect_right(self._bases, address) - 1 if len(self._bases) > 1 else 0
        start = address - self._bases[region]
        return self._views[region][start : start + size]

    def words(self, address: Ints, count: int) -> npt.NDArray[np.uint64]:
        """Return ``count`` little-endian 64-bit words at each address, as an ``(n, count)`` array."""
        result = np.zeros((len(address), count), np.uint64)
        for base, view in zip(self._bases, self._views, strict=True):
            size = len(view) - 8 * count + 1
            inside = (address >= base) & (address < base + size)
            if size > 0 and inside.any():
                raw = overlapping(view, 0, 8 * count)[address[inside] - base]
                result[inside] = raw.view("<u8").reshape(-1, count)
        return result
