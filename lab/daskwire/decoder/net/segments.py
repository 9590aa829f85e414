"""TCP segments: the columns that are stored for each packet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import U16, U32, Array, Columns, Ints, ascending, equally_long, require
from daskwire.decoder.file.records import disorder

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
STAMPED, DSACK = 0x1000, 0x2000  # our own flag bits: the segment has timestamps; it has a duplicate SACK


@dataclass(frozen=True)
class Segments:
    """TCP segments as arrays of equal length. No column is unique: packets may be repeated.

    Attributes:
        time_ns: capture time, nanoseconds since 1970. Sorted by it; equal times are in the order of the file.
            The clocks of several files are aligned.
        flow: one direction of a connection, see ``daskwire.decoder.net.connections``; ``flow >> 1`` is its
            number, ``flow ^ 1`` the opposite direction. Never negative.
        seq: sequence number, modulo 2**32.
        ack: acknowledgement number, modulo 2**32; without the flag ACK it has no meaning.
        flags: TCP's nine flag bits, plus STAMPED and DSACK.
        window: advertised window, unscaled: bytes only in a SYN.
        length: payload bytes on the wire, 0 for a pure ACK.
        captured: payload bytes in the capture, at address ``offset``. At most ``length``, less if the packet
            was truncated.
        offset: address of the payload, without meaning if ``captured`` is 0.
        ip_bytes: IP total length, headers included, so it exceeds ``length``.
        frame_bytes: length of the frame on the wire; of the outermost one, for a segment in a tunnel.
        ip_id: IPv4 identification, 0 for IPv6. Linux also sends 0.
        tsval: timestamp value, 0 without the flag STAMPED.
        tsecr: timestamp echo reply, 0 without the flag STAMPED.
        point: number of the capture point, see ``daskwire.decoder.net.packets.layers``.
    """

    time_ns: Ints
    flow: npt.NDArray[np.int32]
    seq: U32
    ack: U32
    flags: U16
    window: U16
    length: U32
    captured: U32
    offset: Ints
    ip_bytes: U32
    frame_bytes: U32
    ip_id: U16
    tsval: U32
    tsecr: U32
    point: U16

    def __len__(self) -> int:
        return len(self.time_ns)

    TYPES: ClassVar = (
        "i8",
        "i4",
        "u4",
        "u4",
        "u2",
        "u2",
        "u4",
        "u4",
        "i8",
        "u4",
        "u4",
        "u2",
        "u4",
        "u4",
        "u2",
    )

    def columns(self) -> list[npt.NDArray[Any]]:
        """Return the arrays in the order of the fields."""
        return [getattr(self, f.name) for f in fields(self)]

    def validate(self, flows: int) -> None:
        """Check what always holds of the segments of a capture with that number of flows.

        Raises:
            InvariantError: something does not hold.
        """
        columns = dict(zip((f.name for f in fields(self)), self.columns(), strict=True))
        require(equally_long(columns.values()), "Segments: all columns have the same length")
        for (name, column), kind in zip(columns.items(), self.TYPES, strict=True):
            require(column.dtype == np.dtype(kind), f"Segments.{name} has the type {kind}")
        require(ascending(self.time_ns), "Segments.time_ns is sorted")
        require((self.flow >= 0) & (self.flow < flows), f"Segments.flow is 0 to {flows - 1}")
        require(self.captured <= self.length, "Segments.captured is at most length")
        require(self.offset >= 0, "Segments.offset is not negative")
        require(self.ip_bytes > self.length, "Segments.ip_bytes exceeds length")
        stamped = self.flags & STAMPED != 0
        require(stamped | (self.tsval | self.tsecr == 0), "Segments.tsval and tsecr are 0 without STAMPED")
        require(self.flags < 2 * DSACK, "Segments.flags has no bits but TCP's nine, STAMPED and DSACK")

    def take(self, which: Array) -> Segments:
        """Select segments by indices or a mask, in that order."""
        return Segments(*(column[which] for column in self.columns()))


@dataclass(frozen=True)
class Lanes:
    """Segment rows grouped by flow: flow ``f`` has ``order[begin[f] : begin[f + 1]]``, in capture order."""

    order: Ints
    begin: Ints

    def rows(self, flow: int) -> Ints:
        return self.order[self.begin[flow] : self.begin[flow + 1]]


def lanes(segments: Segments, flows: int) -> Lanes:
    """Group the rows of segments by flow."""
    number = np.bincount(segments.flow, minlength=flows)
    return Lanes(by_flow(segments.flow), np.append(0, np.cumsum(number)))


def by_flow(flow: npt.NDArray[np.int32]) -> Ints:
    """Return the stable order by flow number. 16-bit numbers sort much faster."""
    narrow = flow.astype(np.uint16) if len(flow) and int(flow.max()) < 1 << 16 else flow
    return np.argsort(narrow, kind="stable")


def sort_by_time(segments: Segments) -> None:
    """Sort segments by time, in place.

    Files are mostly sorted, so only the segments that have a newer one before them or an older one after them
    are moved.
    """
    time_ns = segments.time_ns
    if not disorder(time_ns):
        return
    newest = np.maximum.accumulate(time_ns)
    oldest = np.minimum.accumulate(time_ns[::-1])[::-1]
    unsorted = np.flatnonzero((time_ns < newest) | (time_ns > oldest))
    order = unsorted[np.argsort(time_ns[unsorted], kind="stable")]
    for column in segments.columns():
        column[unsorted] = column[order]


def concatenate(parts: Iterable[Segments]) -> Segments:
    columns = Columns(Segments.TYPES)
    for part in parts:
        columns.add(part.columns())
    return Segments(*columns.arrays())


@dataclass
class Tally:
    """Counts of the packets in a capture.

    Attributes:
        packets: packets within the requested time span.
        bytes: their bytes on the wire.
        skipped: packets that were not decoded, by reason.
        tunnels: packets in decoded tunnels, by kind of tunnel.
        opaque: packets that may be tunnels but cannot be decoded, by kind or UDP port.
        repeated: segments that another capture point has as well; they were removed.
        first_ns: time of the first packet within the requested span.
        last_ns: time of the last one.
        begin_ns: time of the first packet in the files.
        end_ns: time of the last one.
    """

    packets: int = 0
    bytes: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    tunnels: Counter[str] = field(default_factory=Counter)
    opaque: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    first_ns: int = 1 << 62
    last_ns: int = 0
    begin_ns: int = 0
    end_ns: int = 0

    def note_times(self, time_ns: Ints) -> None:
        """Extend ``begin_ns`` and ``end_ns`` by packets of the files."""
        first, last = int(time_ns.min()), int(time_ns.max())
        self.begin_ns = min(first, self.begin_ns) if self.end_ns else first
        self.end_ns = max(last, self.end_ns)
