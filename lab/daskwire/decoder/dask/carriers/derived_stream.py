"""A stream derived from another one: decrypted TLS records, unmasked WebSocket frames.

Pieces are computed when they are read. A few are cached, so memory does not grow with the capture.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from daskwire.decoder.net.stream import Bytes

CACHED_PIECES = 64


class DerivedStream:
    """A ``ByteStream`` (see ``daskwire.decoder.net.stream``) of consecutive pieces without holes.

    ``load`` computes the bytes of a piece by its number; empty if they are not in the capture.
    """

    def __init__(
        self, sizes: Sequence[int], times_ns: Sequence[int], opened: bool, load: Callable[[int], bytes]
    ) -> None:
        self.end = np.cumsum(np.array(sizes, np.int64), dtype=np.int64)
        self.start = self.end - np.array(sizes, np.int64)
        self.time_ns = np.array(times_ns, np.int64)
        self.opened = opened
        self._load = load
        self._cache: OrderedDict[int, bytes] = OrderedDict()

    def piece_at(self, position: int) -> int:
        return int(np.searchsorted(self.end, position, side="right"))

    def read(self, position: int, size: int) -> Bytes | None:
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
        heads = np.zeros((len(self.start[chunk]), 2), np.uint64)
        for row, start in enumerate(self.start[chunk].tolist()):
            head = self.read(start, 16)
            if head is not None:
                heads[row] = np.frombuffer(head, "<u8")
        return heads

    def _piece(self, piece: int) -> bytes:
        if piece not in self._cache:
            self._cache[piece] = self._load(piece)
            if len(self._cache) > CACHED_PIECES:
                self._cache.popitem(last=False)
        self._cache.move_to_end(piece)
        return self._cache[piece]
