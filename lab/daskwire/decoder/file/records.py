"""The output of every capture format: packets as arrays, and the progress of reading a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace

import numpy as np

from daskwire.base.arrays import U32, Array, Flags, Ints
from daskwire.decoder.file.record_index import Index

Advise = Callable[[int, int, bool], None]  # (start, stop, sparse): these bytes are read next
SPARSE = 16384  # mean record size, bytes, above which reading only the headers is faster than reading all
MAX_PACKET = 1 << 24
PEEK = 68  # bytes of each packet that are read with the record header: enough for TCP with timestamps
MIN_STEP_NS, MAX_STEPS = 1_000_000_000, 4  # of a clock that was set back
AT_ONCE = 1 << 14  # packets per batch: their headers stay in the processor's cache


@dataclass(frozen=True)
class Records:
    """Packets of one link type, as arrays of equal length.

    Attributes:
        time_ns: capture time, nanoseconds since 1970.
        offset: position of the packet's data in the file.
        captured: bytes in the file.
        length: bytes on the wire.
        peek: the first PEEK bytes in the file from ``offset`` on.
        link: pcap's number of the link type.
        interface: number of the interface within the file (pcapng), else 0.
    """

    time_ns: Ints
    offset: Ints
    captured: U32
    length: U32
    peek: Array
    link: int
    interface: int = 0

    def take(self, which: Flags | slice) -> Records:
        """Select packets by a mask or a slice."""
        columns = {
            f.name: getattr(self, f.name)[which] for f in fields(self) if f.name not in ("link", "interface")
        }
        return replace(self, **columns)


@dataclass
class Progress:
    """How far a file was read.

    Attributes:
        position: where reading continues.
        problem: why reading stopped before the end of the file, None if it did not.
        damaged: the problem is damage, not a missing end, so more bytes will not solve it.
        dropped: packets that the capturing program reported as lost (pcapng only).
        disordered: packets that are older than their predecessor.
        steps_back: where time goes back by MIN_STEP_NS or more: position of the packet, nanoseconds. Empty if
            there are more than MAX_STEPS: then the file is in no order at all.
        set_back_ns: by how much its clock was set back during the recording, before that was corrected.
        offset_ns: by how much the clock of the file was ahead of the first file's, before it was aligned.
        unaligned: an earlier file is from the other side of a NAT, and the clocks could not be aligned.
        secrets: TLS key log in the file (pcapng only).
        skipped: packets without a time or a link type, by reason.
        section: the pcapng reader's state between calls.
        last_ns: time of the last packet.
    """

    position: int = 0
    problem: str | None = None
    damaged: bool = False
    dropped: int | None = None
    disordered: int = 0
    steps_back: list[tuple[int, int]] = field(default_factory=list)
    set_back_ns: int = 0
    offset_ns: int = 0
    unaligned: bool = False
    secrets: bytes = b""
    skipped: Counter[str] = field(default_factory=Counter)
    section: object = None
    last_ns: int = 0
    _is_unordered: bool = False

    def note_times(self, records: Records) -> None:
        """Count the disorder among the next packets of the file."""
        advance_ns = np.diff(records.time_ns, prepend=self.last_ns)
        self.disordered += int(np.count_nonzero(advance_ns < 0))
        steps = np.flatnonzero(advance_ns <= -MIN_STEP_NS)
        if len(steps) and not self._is_unordered:
            self.steps_back += zip(records.offset[steps].tolist(), (-advance_ns[steps]).tolist(), strict=True)
            self._is_unordered = len(self.steps_back) > MAX_STEPS
            if self._is_unordered:
                self.steps_back.clear()
        self.last_ns = int(records.time_ns[-1])


def disorder(time_ns: Ints) -> int:
    """Count the packets that are older than their predecessor."""
    return int(np.count_nonzero(time_ns[1:] < time_ns[:-1]))


def no_advice(start: int, stop: int, sparse: bool) -> None:
    """Ignore the advice: the bytes are in memory already."""


def batches(index: Index) -> Iterator[tuple[Ints, int]]:
    """Yield the positions of up to AT_ONCE records, and where the record after them begins."""
    for begin in range(0, len(index.position), AT_ONCE):
        rest = index.position[begin + AT_ONCE :]
        yield index.position[begin : begin + AT_ONCE], int(rest[0]) if len(rest) else index.end
