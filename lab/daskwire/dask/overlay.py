"""A stream that lies over another one: decrypted TLS records, unmasked WebSocket frames.

Pieces are made when they are read and a few are kept, so memory does not grow with the capture.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from daskwire.net.stream import Bytes

KEPT = 64


class Overlay:
    """A ``ByteStream`` (see ``daskwire.net.stream``) of pieces that follow each other without holes.

    ``load`` makes the bytes of a piece by its number, nothing when they are not in the capture.
    """

    def __init__(
        self, sizes: Sequence[int], times_ns: Sequence[int], opened: bool, load: Callable[[int], bytes]
    ) -> None:
        self.end = np.cumsum(np.array(sizes, np.int64), dtype=np.int64)
        self.start = self.end - np.array(sizes, np.int64)
        self.time_ns = np.array(times_ns, np.int64)
        self.opened = opened
        self._load = load
        self._kept: OrderedDict[int, bytes] = OrderedDict()

    def piece_at(self, position: int) -> int:
        """Index of the piece that holds a position."""
        return int(np.searchsorted(self.end, position, side="right"))

    def read(self, position: int, size: int) -> Bytes | None:
        """``size`` bytes, or None when any of them is not in the capture."""
        parts, piece = [], self.piece_at(position)
        while size > 0:
            if piece >= len(self.end):
                return None
            start, end = int(self.start[piece]), int(self.end[piece])
            data = self._piece(piece)
            if len(data) != end - start:
                return None
            part = data[position - start : position - start + size]
            parts.append(part)
            position, size, piece = position + len(part), size - len(part), piece + 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def heads(self, chunk: slice) -> npt.NDArray[np.uint64]:
        """The first two 64-bit words of some pieces; zeros where they are not there."""
        heads = np.zeros((len(self.start[chunk]), 2), np.uint64)
        for row, start in enumerate(self.start[chunk].tolist()):
            head = self.read(start, 16)
            if head is not None:
                heads[row] = np.frombuffer(head, "<u8")
        return heads

    def _piece(self, piece: int) -> bytes:
        if piece not in self._kept:
            self._kept[piece] = self._load(piece)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(piece)
        return self._kept[piece]
