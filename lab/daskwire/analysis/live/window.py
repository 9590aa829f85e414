"""The last seconds of a recording, without the payload of large messages: problems are found without it."""

from __future__ import annotations

import io
from collections import deque
from dataclasses import dataclass

import numpy as np

from daskwire.base.arrays import Ints
from daskwire.decoder.file import pcap
from daskwire.decoder.file.pcapng_writer import PcapngWriter
from daskwire.decoder.file.reading import read_blocks
from daskwire.decoder.file.records import Progress, Records

MAX_WINDOW_BYTES = 32 << 20
HEAD_BYTES = 512  # what is kept of each packet if too many are not decoded yet


@dataclass(frozen=True)
class Payload:
    """Where payload is that nobody reads: positions in the file in ascending order, and bytes."""

    start: Ints
    size: Ints

    def sizes_without(self, records: Records) -> Ints:
        """Return how many bytes of each packet come before such payload, which ends with the packet."""
        captured = records.captured.astype(np.int64)
        if not len(self.start):
            return captured
        index = np.minimum(np.searchsorted(self.start, records.offset), len(self.start) - 1)
        before = self.start[index] - records.offset
        is_tail = (before >= 0) & (before < captured) & (before + self.size[index] >= captured)
        return np.where(is_tail, before, captured)


NOTHING = Payload(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Window:
    """Copies the packets of a recording once they are decoded, and forgets the oldest ones.

    Attributes:
        begin_s: when its first packets were recorded, on the clock of ``add``.
        position: how far the recording was copied, bytes.
    """

    def __init__(self, name: str, begin_s: float) -> None:
        self._name = name
        self._progress = Progress()
        self._head = io.BytesIO()
        self._writer = PcapngWriter(self._head)
        self._interfaces: dict[tuple[int, int], int] = {}
        self._parts: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self.begin_s = begin_s

    @property
    def position(self) -> int:
        return self._progress.position

    def add(self, view: memoryview, payload: Payload, begin_s: float) -> None:
        """Copy the packets up to the end of ``view`` that were recorded since ``begin_s``."""
        part = self._copy(view, self._progress, payload)
        self._parts.append((begin_s, part))
        self._bytes += len(part)

    def forget(self, before_s: float) -> None:
        """Forget what was recorded before a time, and more if the window is too large."""
        while len(self._parts) > 1 and (self._parts[1][0] <= before_s or self._bytes > MAX_WINDOW_BYTES):
            self._bytes -= len(self._parts.popleft()[1])
            self.begin_s = self._parts[0][0]

    def capture(self, view: memoryview) -> bytes:
        """Return a capture of the window and of the packets in ``view`` that were not copied yet."""
        progress = Progress(position=self._progress.position, section=self._progress.section)
        longest = HEAD_BYTES if len(view) - progress.position > MAX_WINDOW_BYTES else len(view)
        rest = self._copy(view, progress, NOTHING, longest)
        return b"".join([self._head.getvalue(), *(part for _, part in self._parts), rest])

    def _copy(self, view: memoryview, progress: Progress, payload: Payload, longest: int = 1 << 62) -> bytes:
        """Return packets as blocks of pcapng; their interfaces are described in the head."""
        result = io.BytesIO()
        if len(view) <= pcap.HEADER:
            return b""  # no packet yet
        for records in read_blocks(self._name, view, progress):
            key = records.link, records.interface
            if key not in self._interfaces:
                self._interfaces[key] = self._writer.interface(records.link, f"{records.interface}")
            sizes = np.minimum(payload.sizes_without(records), longest)
            columns = (records.time_ns, records.offset, sizes, records.length)
            for time_ns, offset, size, length in zip(*(column.tolist() for column in columns), strict=True):
                data = view[offset : offset + size]
                self._writer.packet(self._interfaces[key], time_ns, data, length, (), result)
        return result.getvalue()
