"""Array types, and columns of equal length that grow batch by batch.

A batch is copied into the columns while it is still in the processor's cache. Collecting the batches and
concatenating them at the end would read and write all memory once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Signed = npt.NDArray[np.signedinteger[Any]]  # any width
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
NONE = -1  # in a column of indices: it refers to no row
ALIGNED = 64  # values: each column starts on a cache line


class InvariantError(Exception):
    """Something that always holds of decoded data does not: a fault of daskwire, not of the capture."""


def require(holds: bool | npt.NDArray[np.bool_], what: str) -> None:
    """Check an invariant.

    Raises:
        InvariantError: it does not hold, for one row at least.
    """
    failures = np.flatnonzero(~np.atleast_1d(holds))
    if len(failures):
        raise InvariantError(f"{what}; it does not hold for row {failures[0]} ({len(failures)} in all)")


def equally_long(columns: Iterable[Sequence[Any] | Array]) -> bool:
    return len(set(map(len, columns))) <= 1


def ascending(values: Array) -> npt.NDArray[np.bool_]:
    """Return whether each value is not smaller than the one before it."""
    return np.append(True, values[1:] >= values[:-1])[: len(values)]


class Columns:
    """Columns of the given NumPy types. Views from ``arrays`` stay valid when rows are added.

    All columns share one memory block, so that NumPy can use huge pages: the first touch of a page is
    expensive.
    """

    def __init__(self, types: Iterable[str]) -> None:
        self._types = [np.dtype(kind) for kind in types]
        self._columns = _block(self._types, 0)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def add(self, batch: Sequence[Array], share: float = 1.0) -> None:
        """Append a batch, one array per column.

        Args:
            batch: arrays of equal length, in the order of the columns.
            share: share (0 to 1) of all rows that are present after this batch; used to allocate space for
                the rest.
        """
        begin, self._used = self._used, self._used + len(batch[0])
        if self._used > len(self._columns[0]):
            capacity = max(int(self._used / max(share, 0.001) * 1.1), 2 * begin)
            longer = _block(self._types, capacity)
            for column, previous in zip(longer, self._columns, strict=True):
                column[:begin] = previous[:begin]
            self._columns = longer
        for column, values in zip(self._columns, batch, strict=True):
            column[begin : self._used] = values

    def arrays(self) -> list[Array]:
        return [column[: self._used] for column in self._columns]


def _block(types: Sequence[np.dtype[Any]], capacity: int) -> list[Array]:
    """Allocate columns of ``capacity`` values, one after the other in one memory block."""
    rows = -(-capacity // ALIGNED) * ALIGNED
    ends = np.cumsum([kind.itemsize * rows for kind in types]).tolist()
    block = np.empty(ends[-1], np.uint8)
    starts = [0, *ends[:-1]]
    return [block[a:b].view(kind)[:capacity] for a, b, kind in zip(starts, ends, types, strict=True)]


def header_type(width: int, /, **fields: tuple[Any, int]) -> np.dtype[np.void]:
    """Build the dtype of a header of ``width`` bytes from fields ``name=(type, offset)``."""
    kinds, offsets = [kind for kind, _ in fields.values()], [at for _, at in fields.values()]
    header: Any = {"names": list(fields), "formats": kinds, "offsets": offsets, "itemsize": width}
    dtype: np.dtype[np.void] = np.dtype(header)
    return dtype


def overlapping(view: memoryview, start: int, size: int) -> npt.NDArray[np.void]:
    """View the ``size`` bytes at every position from ``start`` on, as overlapping items. Copies nothing."""
    return np.ndarray((len(view) - start - size + 1,), f"V{size}", view, start, (1,))
