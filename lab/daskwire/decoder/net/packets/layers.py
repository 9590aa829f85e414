"""The data that one protocol layer's parser passes to the next, and functions that read header fields.

One gather of a few bytes at computed positions replaces a loop over packets. Each field of the gathered
headers is then a column for array arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

import numpy as np

from daskwire.base.arrays import U8, U16, U32, U64, Array, Ints, Signed, overlapping
from daskwire.decoder.file.records import Records
from daskwire.decoder.net.connections import Connections
from daskwire.decoder.net.packets.capture_points import CapturePoints
from daskwire.decoder.net.packets.duplicate_sacks import DuplicateSacks
from daskwire.decoder.net.packets.macs import Macs
from daskwire.decoder.net.packets.notices import Notices
from daskwire.decoder.net.segments import Tally

Some = TypeVar("Some", "Layer", "Internet")


@dataclass(frozen=True)
class Shared:
    """What the parsers of all batches share: a setting, and the objects that collect the results."""

    tunnel_ports: Mapping[int, str]  # UDP port -> kind of tunnel
    connections: Connections = field(default_factory=Connections)
    tally: Tally = field(default_factory=Tally)
    points: CapturePoints = field(default_factory=CapturePoints)
    macs: Macs = field(default_factory=Macs)
    notices: Notices = field(default_factory=Notices)
    duplicate_sacks: DuplicateSacks = field(default_factory=DuplicateSacks)

    def shift(self, addresses: range, offset_ns: int) -> None:
        """Add to the times of the packets at some addresses. Segments have columns of their own."""
        self.macs.shift(addresses, offset_ns)
        self.notices.shift(addresses, offset_ns)


@dataclass(frozen=True)
class Batch:
    """Packets of one file that are parsed together.

    The first byte of ``view`` has the address ``base``.
    """

    view: memoryview
    base: int
    records: Records
    shared: Shared
    file: int

    @property
    def addresses(self) -> Ints:
        """Where each packet is in memory."""
        return self.base + self.records.offset


@dataclass(frozen=True)
class Layer:
    """Where the next header of each packet begins, as arrays of equal length.

    Attributes:
        at: position of the next header.
        end: end of the captured bytes.
        wire_end: where the packet would end if it had been captured whole.
        row: index of the packet in its batch.
    """

    at: Ints
    end: Ints
    wire_end: Ints
    row: Ints

    def moved(self, at: Ints) -> Layer:
        """Return the same packets with the next header at another position."""
        return Layer(at, self.end, self.wire_end, self.row)


@dataclass(frozen=True)
class Internet:
    """IP packets, as arrays of equal length.

    Attributes:
        at: position of the payload.
        available: captured bytes of the payload.
        row: index of the packet in its batch.
        protocol: IP protocol number.
        above: length of the payload according to the IP header.
        length: total length according to the IP header.
        source: code of the source address, see ``Connections``.
        destination: code of the destination address.
        identification: IPv4 identification, 0 for IPv6.
    """

    at: Ints
    available: Signed
    row: Ints
    protocol: U8
    above: Signed
    length: Signed
    source: U64
    destination: U64
    identification: U16

    @property
    def end(self) -> Ints:
        """The end of the captured bytes of each packet."""
        return self.at + self.available

    def layer(self, at: Ints) -> Layer:
        """Return the inner packets, which begin at ``at`` and end where the IP header says."""
        return Layer(at, self.end, self.at + self.above, self.row)


def some(packets: Some, which: Array) -> Some:
    """Select packets by a mask or by indices."""
    return type(packets)(*(getattr(packets, f.name)[which] for f in fields(packets)))


def gather(view: memoryview, at: Ints, header: np.dtype[np.void]) -> Array:
    """Read the header at each position."""
    return overlapping(view, 0, header.itemsize)[at].view(header)


def u16(view: memoryview, at: Ints) -> U16:
    """Read the big-endian 16-bit word at each position."""
    words: U16 = np.ndarray((len(view) - 1,), ">u2", view, 0, (1,))
    return words[at].astype(np.uint16)


def u32(view: memoryview, at: Ints) -> U32:
    """Read the big-endian 32-bit word at each position."""
    words: U32 = np.ndarray((len(view) - 3,), ">u4", view, 0, (1,))
    return words[at].astype(np.uint32)


def u8(view: memoryview, at: Ints) -> U8:
    return np.frombuffer(view, np.uint8)[at]
