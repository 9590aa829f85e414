"""TCP segments: what is kept of each packet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from daskwire.arrays import U16, U32, Array, Columns, Ints
from daskwire.file.records import disorder

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


@dataclass(frozen=True)
class Segments:
    """TCP segments as arrays of one length, in capture order.

    ``flow``: one direction of a connection, see ``daskwire.net.connections``; ``flags``: TCP's nine bits plus
    STAMPED and DSACK; ``length``: payload bytes on the wire, of which ``captured`` lie at address
    ``offset``; ``ip_bytes``: IP total length; ``frame_bytes``: the frame on the wire; ``ip_id``: IPv4
    identification, 0 for IPv6.
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

    def __len__(self) -> int:
        return len(self.time_ns)

    TYPES: ClassVar = ("i8", "i4", "u4", "u4", "u2", "u2", "u4", "u4", "i8", "u4", "u4", "u2", "u4", "u4")

    def columns(self) -> list[npt.NDArray[Any]]:
        """The arrays, in the order of the fields."""
        return [getattr(self, f.name) for f in fields(self)]

    def take(self, which: Array) -> Segments:
        """The segments at some indices (or where a mask is true), in that order."""
        return Segments(*(column[which] for column in self.columns()))


@dataclass(frozen=True)
class Lanes:
    """The rows of segments by flow: flow ``f`` has ``order[begin[f] : begin[f + 1]]``, in capture order."""

    order: Ints
    begin: Ints

    def rows(self, flow: int) -> Ints:
        """Rows of a flow."""
        return self.order[self.begin[flow] : self.begin[flow + 1]]


def lanes(segments: Segments, flows: int) -> Lanes:
    """Sort the rows of segments by flow."""
    number = np.bincount(segments.flow, minlength=flows)
    return Lanes(by_flow(segments.flow), np.append(0, np.cumsum(number)))


def by_flow(flow: npt.NDArray[np.int32]) -> Ints:
    """Stable order by flow number; 16-bit numbers sort much faster."""
    narrow = flow.astype(np.uint16) if len(flow) and int(flow.max()) < 1 << 16 else flow
    return np.argsort(narrow, kind="stable")


def sort_by_time(segments: Segments) -> None:
    """Put segments in order of time, in place. A file is mostly in order: only those that have an older one
    behind them, or a newer one before them, change places among themselves.
    """
    time_ns = segments.time_ns
    if not disorder(time_ns):
        return
    newest = np.maximum.accumulate(time_ns)
    oldest = np.minimum.accumulate(time_ns[::-1])[::-1]
    upset = np.flatnonzero((time_ns < newest) | (time_ns > oldest))
    order = upset[np.argsort(time_ns[upset], kind="stable")]
    for column in segments.columns():
        column[upset] = column[order]


def concatenate(parts: Iterable[Segments]) -> Segments:
    """Several batches as one."""
    columns = Columns(Segments.TYPES)
    for part in parts:
        columns.add(part.columns())
    return Segments(*columns.arrays())


@dataclass
class Tally:
    """What was in the capture besides whole TCP segments: ``skipped``, by reason."""

    packets: int = 0
    bytes: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    tunnels: Counter[str] = field(default_factory=Counter)  # packets that were looked into, by kind
    opaque: Counter[str] = field(default_factory=Counter)  # packets that may be tunnels, by kind or port
    first_ns: int = 1 << 62
    last_ns: int = 0
    begin_ns: int = 0  # of all packets, those outside of the span that was asked for too
    end_ns: int = 0

    def see(self, time_ns: Ints) -> None:
        """Packets of the files, before any are left out."""
        first, last = int(time_ns.min()), int(time_ns.max())
        self.begin_ns = min(first, self.begin_ns) if self.end_ns else first
        self.end_ns = max(last, self.end_ns)
