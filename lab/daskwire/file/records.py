"""What every capture format gives: packets as arrays, and how far the reading of their file has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace

import numpy as np

from daskwire.arrays import U32, Array, Flags, Ints
from daskwire.file.lockstep import Index

Advise = Callable[
    [int, int, bool], None
]  # "bytes start to stop are read next; only a little here and there?"
SPARSE = 16384  # mean record size from which reading only the headers beats reading everything
MAX_PACKET = 1 << 24
PEEK = 68  # bytes of each packet that are read along with the record's header: enough for TCP with timestamps
AT_ONCE = 1 << 14  # packets given at a time: what is read of them stays in the processor's cache


@dataclass(frozen=True)
class Records:
    """Some packets of one link type (pcap's number, ``link``) as arrays of one length.

    ``offset`` is where the data begins in the file; ``captured`` and ``length`` are bytes in the file and on
    the wire; ``peek`` is what stands in the file from ``offset`` on, PEEK bytes in one value.
    """

    time_ns: Ints
    offset: Ints
    captured: U32
    length: U32
    peek: Array
    link: int

    def take(self, which: Flags | slice) -> Records:
        """The packets where a mask is true, or in a slice."""
        some = {f.name: getattr(self, f.name)[which] for f in fields(self) if f.name != "link"}
        return replace(self, **some)


@dataclass
class Progress:
    """How far a file was read. ``problem`` says why reading stopped before the end, None if it did not."""

    position: int = 0
    problem: str | None = None
    dropped: int | None = None  # packets that the capturing program said it lost (pcapng only)
    damaged: bool = False  # the problem is not that the end is missing: more bytes will not mend it
    disordered: int = 0  # packets that are older than the one before them
    secrets: bytes = b""  # TLS key log found in the file (pcapng only)
    skipped: Counter[str] = field(default_factory=Counter)  # packets without time or link type, by reason
    section: object = None  # pcapng's own state between calls
    last_ns: int = 0  # time of the last packet

    def see(self, time_ns: Ints) -> None:
        """The next packets of the file."""
        self.disordered += disorder(time_ns) + (int(time_ns[0]) < self.last_ns)
        self.last_ns = int(time_ns[-1])


def disorder(time_ns: Ints) -> int:
    """How many packets are older than the one before them."""
    return int(np.count_nonzero(time_ns[1:] < time_ns[:-1]))


def no_advice(start: int, stop: int, sparse: bool) -> None:
    """For bytes that are in memory anyway."""


def batches(found: Index) -> Iterator[tuple[Ints, int]]:
    """Positions of a few records at a time, and where the record after them begins."""
    for begin in range(0, len(found.position), AT_ONCE):
        rest = found.position[begin + AT_ONCE :]
        yield found.position[begin : begin + AT_ONCE], int(rest[0]) if len(rest) else found.end
