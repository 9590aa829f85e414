"""ICMP errors and DNS packets. They are few, so each one is an object."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

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
