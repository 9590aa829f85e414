"""ICMP errors, DNS packets, and the MAC addresses of flows and of ARP: few, so each is an object."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import U32, U64, Array, Ints

# ICMP errors and DNS packets. They are few, so each one is an object.

MAX_NOTICES_OF_A_KIND = 20_000  # a flood must not fill the memory
TOO_BIG, PORT_UNREACHABLE = "packet too big", "port unreachable"


@dataclass(frozen=True)
class IcmpError:
    """A report that a packet did not arrive.

    Attributes:
        time_ns: when it was captured, nanoseconds since 1970.
        address: where it is in memory.
        reporter: address of the router or host that reports it.
        error: what happened, such as "host unreachable".
        mtu: largest packet that passes, bytes; 0 if it does not say.
        protocol: IP protocol of the packet that did not arrive.
        source: address and port that had sent it; port 0 if it has none.
        destination: address and port to which it was sent.
    """

    time_ns: int
    address: int
    reporter: str
    error: str
    mtu: int
    protocol: int
    source: tuple[str, int]
    destination: tuple[str, int]


@dataclass(frozen=True)
class DnsPacket:
    """A DNS query or its answer.

    Attributes:
        time_ns: when it was captured, nanoseconds since 1970.
        address: where it is in memory.
        client: address and port that asks.
        server: address of the name server.
        number: identifier of the query and its answer.
        name: domain name, in lower case.
        code: result of an answer, 0 for success; None for a query.
        records: number of records in an answer.
    """

    time_ns: int
    address: int
    client: tuple[str, int]
    server: str
    number: int
    name: str
    code: int | None
    records: int


Notice = TypeVar("Notice", IcmpError, DnsPacket)


@dataclass
class Notices:
    """The ICMP errors and DNS packets of a capture, in the order of the files; at most MAX_NOTICES each."""

    icmp: list[IcmpError] = field(default_factory=list)
    dns: list[DnsPacket] = field(default_factory=list)

    def add_icmp(self, errors: Iterable[IcmpError]) -> None:
        self.icmp += errors
        del self.icmp[MAX_NOTICES_OF_A_KIND:]

    def add_dns(self, packets: Iterable[DnsPacket]) -> None:
        self.dns += packets
        del self.dns[MAX_NOTICES_OF_A_KIND:]

    def shift(self, addresses: range, offset_ns: int) -> None:
        """Add to the times of the notices at some addresses."""
        self.icmp = [_shifted(notice, addresses, offset_ns) for notice in self.icmp]
        self.dns = [_shifted(notice, addresses, offset_ns) for notice in self.dns]


def _shifted(notice: Notice, addresses: range, offset_ns: int) -> Notice:
    return replace(notice, time_ns=notice.time_ns + offset_ns) if notice.address in addresses else notice


# MAC addresses of flows, and of IP addresses as ARP announces them.
#
# They show what IP addresses hide: two hosts with one address, and packets of a connection that take
# different
# routers in each direction.

MAX_CHANGES = 1 << 16  # segments of flows with several MAC addresses
MAX_ARP = 1 << 16  # ARP packets


@dataclass(frozen=True)
class Changes:
    """Segments of flows that use several MAC addresses, from the batch on in which a second one appears."""

    time_ns: Ints
    flow: Ints
    source: U64
    destination: U64


@dataclass(frozen=True)
class Announcements:
    """ARP packets: who announced which IPv4 address (as a code of ``Connections``)."""

    time_ns: Ints
    address: U64
    mac: U64


@dataclass
class Macs:
    """The MAC addresses of a capture, as 48-bit numbers; 0 where they are unknown.

    Attributes:
        source: (per flow) source of its first segment.
        destination: (per flow) destination of its first segment.
    """

    source: U64 = field(default_factory=lambda: np.zeros(64, np.uint64))
    destination: U64 = field(default_factory=lambda: np.zeros(64, np.uint64))
    _changes: list[tuple[Array, ...]] = field(default_factory=list)
    _arp: list[tuple[Array, ...]] = field(default_factory=list)

    def note(
        self, flow: npt.NDArray[np.int32], position: Ints, time_ns: Ints, source: U64, destination: U64
    ) -> None:
        """Compare the MAC addresses of a batch of segments with those of their flows."""
        self._grow(int(flow.max()) + 1)
        if (self.source[flow] == 0).any():
            new = np.flatnonzero(self.source[flow] == 0)[::-1]  # reversed: the first segment wins
            self.source[flow[new]], self.destination[flow[new]] = source[new], destination[new]
        differs = (self.source[flow] != source) | (self.destination[flow] != destination)
        if differs.any() and sum(len(part[0]) for part in self._changes) < MAX_CHANGES:
            rows = np.flatnonzero(np.isin(flow, np.unique(flow[differs])))
            own = flow[rows].astype(np.int64)
            self._changes.append((position[rows], time_ns[rows], own, source[rows], destination[rows]))

    def _grow(self, flows: int) -> None:
        if flows > len(self.source):
            longer = np.zeros(max(flows, 2 * len(self.source)) - len(self.source), np.uint64)
            self.source = np.concatenate([self.source, longer])
            self.destination = np.concatenate([self.destination, longer])

    def note_arp(self, position: Ints, time_ns: Ints, address: U32, mac: U64) -> None:
        """Store who announces an address."""
        if sum(len(part[0]) for part in self._arp) < MAX_ARP:
            self._arp.append((position, time_ns, address.astype(np.uint64), mac))

    def shift(self, addresses: range, offset_ns: int) -> None:
        """Add to the times of the packets at some addresses in memory."""
        for own, time_ns, *_ in (*self._changes, *self._arp):
            time_ns[(own >= addresses.start) & (own < addresses.stop)] += offset_ns

    @property
    def changes(self) -> Changes:
        return Changes(*_joined(self._changes, (np.int64, np.int64, np.uint64, np.uint64)))

    @property
    def announcements(self) -> Announcements:
        return Announcements(*_joined(self._arp, (np.int64, np.uint64, np.uint64)))


def _joined(parts: list[tuple[Array, ...]], types: tuple[type, ...]) -> list[Array]:
    """Join all columns but the first one, the addresses in memory."""
    if not parts:
        return [np.zeros(0, kind) for kind in types]
    return [np.concatenate(column) for column in list(zip(*parts, strict=True))[1:]]


def format_mac(mac: int) -> str:
    """Format a MAC address as ``02:42:ac:11:00:02``."""
    return ":".join(f"{mac >> shift & 0xFF:02x}" for shift in range(40, -8, -8))
