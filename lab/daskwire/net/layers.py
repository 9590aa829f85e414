"""Packets on their way up: what is passed from one layer's parser to the next, and how headers are read.

One gather of a few bytes at computed places replaces a loop over packets; each field of the headers gathered
is then read as a column, on which all else is arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from daskwire.arrays import U8, U16, U64, Array, Ints, Signed, overlapping
from daskwire.file.records import Records
from daskwire.net.connections import Connections
from daskwire.net.segments import Tally

Some = TypeVar("Some", "Layer", "Internet")


@dataclass(frozen=True)
class Batch:
    """Packets that are parsed together, and where what is found in them goes.

    ``view`` is memory of which the first byte has the address ``base``.
    """

    view: memoryview
    base: int
    records: Records
    table: Connections
    tally: Tally


@dataclass(frozen=True)
class Layer:
    """Where the next header begins, in arrays of one length."""

    at: Ints
    end: Ints  # end of the captured bytes
    wire_end: Ints  # end of the bytes on the wire
    row: Ints  # index of the packet in its batch

    def moved(self, at: Ints) -> Layer:
        """The same packets with the next header somewhere else."""
        return Layer(at, self.end, self.wire_end, self.row)


@dataclass(frozen=True)
class Internet:
    """IP packets: where what they carry begins, and what their headers say.

    ``room``: captured bytes from there on; ``above``: IP's length without its header, ``length`` with it;
    addresses are codes of ``Connections``.
    """

    at: Ints
    room: Signed
    row: Ints
    protocol: U8
    above: Signed
    length: Signed
    source: U64
    destination: U64
    identification: U16

    @property
    def end(self) -> Ints:
        """End of the captured bytes."""
        return self.at + self.room

    def layer(self, at: Ints) -> Layer:
        """What is inside: packets that begin further up, and end where IP says."""
        return Layer(at, self.end, self.at + self.above, self.row)


def some(of: Some, which: Array) -> Some:
    """Some of the packets, by a mask or by indices."""
    return type(of)(*(getattr(of, f.name)[which] for f in fields(of)))


def gather(view: memoryview, at: Ints, header: np.dtype[np.void]) -> Array:
    """The headers that begin at many places."""
    return overlapping(view, 0, header.itemsize)[at].view(header)


def u16(view: memoryview, at: Ints) -> U16:
    """Big-endian 16-bit words."""
    every: U16 = np.ndarray((len(view) - 1,), ">u2", view, 0, (1,))
    return every[at].astype(np.uint16)


def u8(view: memoryview, at: Ints) -> U8:
    """Bytes."""
    return np.frombuffer(view, np.uint8)[at]
