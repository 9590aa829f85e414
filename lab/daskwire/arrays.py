"""The types of arrays, and arrays of one length that grow together: what is found batch by batch, put end
to end.

Each batch is copied while it is still in the processor's cache; keeping the batches to join them at the end
would read and write all memory once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Signed = npt.NDArray[np.signedinteger[Any]]  # as wide as it needs to be
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
ALIGNED = 64  # values; so that each column begins where a line of the processor's cache does


class Columns:
    """Columns of given NumPy types; ``arrays`` are views that stay valid when more is added.

    All lie in one block: NumPy asks for huge pages for what is large, and each page costs at its first touch.
    """

    def __init__(self, types: Iterable[str]) -> None:
        self._types = [np.dtype(kind) for kind in types]
        self._columns = _block(self._types, 0)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def add(self, batch: Sequence[Array], share: float = 1.0) -> None:
        """Append a batch, one array for each column. With it, ``share`` (0 to 1) of everything is there: room
        is made for the rest.
        """
        begin, self._used = self._used, self._used + len(batch[0])
        if self._used > len(self._columns[0]):
            room = max(int(self._used / max(share, 0.001) * 1.1), 2 * begin)
            longer = _block(self._types, room)
            for column, before in zip(longer, self._columns, strict=True):
                column[:begin] = before[:begin]
            self._columns = longer
        for column, values in zip(self._columns, batch, strict=True):
            column[begin : self._used] = values

    def arrays(self) -> list[Array]:
        """All that was added."""
        return [column[: self._used] for column in self._columns]


def _block(types: Sequence[np.dtype[Any]], room: int) -> list[Array]:
    """Columns of ``room`` values each, one behind the other in one piece of memory."""
    rows = -(-room // ALIGNED) * ALIGNED
    ends = np.cumsum([kind.itemsize * rows for kind in types]).tolist()
    block = np.empty(ends[-1], np.uint8)
    starts = [0, *ends[:-1]]
    return [block[a:b].view(kind)[:room] for a, b, kind in zip(starts, ends, types, strict=True)]


def header_type(width: int, /, **fields: tuple[Any, int]) -> np.dtype[np.void]:
    """A header of ``width`` bytes: of each field its type and where it stands; fields may overlap."""
    kinds, places = [kind for kind, _ in fields.values()], [at for _, at in fields.values()]
    header: Any = {"names": list(fields), "formats": kinds, "offsets": places, "itemsize": width}
    made: np.dtype[np.void] = np.dtype(header)
    return made


def overlapping(view: memoryview, start: int, size: int) -> npt.NDArray[np.void]:
    """The ``size`` bytes that begin at each byte of the file from ``start`` on, overlapping, not copied."""
    return np.ndarray((len(view) - start - size + 1,), f"V{size}", view, start, (1,))
