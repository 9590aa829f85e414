"""Which connection each segment belongs to.

A connection is a pair of endpoints (address and port); its two directions are flows. Flow numbers are ``2 *
connection + direction``; the same ports used again, which a new SYN shows, make a new connection. Segments
come in batches of thousands with few connections among them, so a small direct-mapped table answers nearly
all of them at once; every answer is compared with the true endpoints, so a clash of hashes costs time,
never correctness.
"""

from __future__ import annotations

from ipaddress import ip_address

import numpy as np
import numpy.typing as npt

from daskwire.arrays import U8, U32, U64, Flags, Ints

SLOTS = 1 << 16
REORDERED = 64  # packets by which a SYN may be overtaken
REACH = 1 << 20  # bytes that a connection may have sent by then
MIX_A, MIX_B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
IPV6_CODES = 1 << 32  # codes below are IPv4 addresses, from here on places in the list of IPv6 addresses


class Connections:
    """All connections seen so far; endpoint codes are ``address code << 16 | port``."""

    def __init__(self) -> None:
        self.low: list[
            int
        ] = []  # endpoint with the smaller code, per connection: direction 0 sends from here
        self.high: list[int] = []
        self._number: dict[tuple[int, int], int] = {}
        self._addresses: dict[bytes, int] = {}  # of IPv6
        self._listed: list[bytes] = []
        self._slot_low = np.zeros(SLOTS, np.uint64)
        self._slot_high = np.zeros(SLOTS, np.uint64)
        self._slot_number = np.zeros(SLOTS, np.int32)

    def __len__(self) -> int:
        return len(self.low)

    def address_codes(self, raw: U8) -> U64:
        """Codes of IPv6 addresses, given as an ``(n, 16)`` array of bytes."""
        unique, inverse = np.unique(np.ascontiguousarray(raw).view("V16").ravel(), return_inverse=True)
        return np.array([self._address_code(bytes(u)) for u in unique], np.uint64)[inverse]

    def _address_code(self, address: bytes) -> int:
        if address not in self._addresses:
            self._addresses[address] = IPV6_CODES + len(self._listed)
            self._listed.append(address)
        return self._addresses[address]

    def flows(self, source: U64, destination: U64) -> npt.NDArray[np.int32]:
        """Flow number of each segment, from its endpoints' codes."""
        upward = source > destination
        low, high = np.minimum(source, destination), np.maximum(source, destination)
        slot = (((low * MIX_A) ^ (high * MIX_B)) * MIX_A >> np.uint64(48)).astype(np.int64)
        known = (self._slot_low[slot] == low) & (self._slot_high[slot] == high)
        if not known.all():
            self._learn(low, high, slot, known)
            known = (self._slot_low[slot] == low) & (self._slot_high[slot] == high)
        number = self._slot_number[slot]
        for row in np.flatnonzero(~known).tolist():  # another connection sits in the slot
            number[row] = self._register(int(low[row]), int(high[row]))
        return np.asarray(number * 2 + upward, np.int32)

    def _learn(self, low: U64, high: U64, slot: Ints, known: Flags) -> None:
        new = np.flatnonzero(~known)
        _, first = np.unique(slot[new], return_index=True)
        for row in np.sort(new[first]).tolist():
            place = slot[row]
            if self._slot_low[place] == 0 and self._slot_high[place] == 0:
                self._slot_low[place], self._slot_high[place] = low[row], high[row]
                self._slot_number[place] = self._register(int(low[row]), int(high[row]))

    def _register(self, low: int, high: int) -> int:
        number = self._number.get((low, high))
        return self.reopen_at(low, high) if number is None else number

    def reopen_at(self, low: int, high: int) -> int:
        """A new connection between two endpoints."""
        self._number[low, high] = len(self.low)
        self.low.append(low)
        self.high.append(high)
        return len(self.low) - 1

    def endpoints(self, flow: int) -> tuple[str, int, str, int]:
        """Source address and port, destination address and port of a flow."""
        pair = (self.low[flow // 2], self.high[flow // 2])
        source, destination = pair if flow % 2 == 0 else pair[::-1]
        return (
            self._address(source >> 16),
            source & 0xFFFF,
            self._address(destination >> 16),
            destination & 0xFFFF,
        )

    def _address(self, code: int) -> str:
        if code < IPV6_CODES:
            return str(ip_address(code))
        return str(ip_address(self._listed[code - IPV6_CODES]))


def split_reused(flow: npt.NDArray[np.int32], syn: Ints, seq: U32, ack: U32, table: Connections) -> None:
    """Give segments after a SYN that opens the same ports again connection numbers of their own, in place.

    ``syn``: rows of segments with SYN and without ACK. A repeated SYN has the sequence number of the first.
    """
    connection = flow[syn] // 2
    order = np.argsort(connection, kind="stable")
    rows, owner = syn[order], connection[order]
    repeated = np.zeros(len(rows), bool)
    repeated[1:] = (
        (owner[1:] == owner[:-1]) & (flow[rows[1:]] == flow[rows[:-1]]) & (seq[rows[1:]] == seq[rows[:-1]])
    )
    rows, owner = rows[~repeated], owner[~repeated]
    if not len(rows):
        return
    first = _first_rows(flow, owner)
    again = first[owner] < rows
    rows, owner = rows[again], owner[again]
    rows = np.array([_overtaken(flow, row, seq, ack) for row in rows.tolist()], np.int64)
    again = first[owner] < rows
    rows, owner = rows[again], owner[again]
    if not len(rows):
        return
    numbers = np.array([table.reopen_at(table.low[c], table.high[c]) for c in owner.tolist()], np.int64)
    affected = np.zeros(int(flow.max()) // 2 + 1, bool)
    affected[owner] = True
    mine = np.flatnonzero(affected[flow // 2])
    begins = owner.astype(np.int64) << 40 | rows
    place = np.searchsorted(begins, (flow[mine] // 2).astype(np.int64) << 40 | mine, side="right") - 1
    moved = (place >= 0) & (owner[np.maximum(place, 0)] == flow[mine] // 2)
    target = mine[moved]
    flow[target] = (numbers[place[moved]] * 2 + flow[target] % 2).astype(np.int32)


def _overtaken(flow: npt.NDArray[np.int32], row: int, seq: U32, ack: U32) -> int:
    """First row of the connection that a SYN opens: packets that follow it may have been captured before it
    (several queues of a card). Their numbers lie just above the SYN's; those of a connection that used the
    ports earlier lie below (RFC 6528).
    """
    begin = max(row - REORDERED, 0)
    near = begin + np.flatnonzero(flow[begin:row] >> 1 == flow[row] >> 1)
    number = np.where(flow[near] == flow[row], seq[near], ack[near])
    step = (number - (seq[row] + np.uint32(1))).astype(np.uint32)
    foreign = np.flatnonzero(step >= REACH)
    mine = near[foreign[-1] + 1 :] if len(foreign) else near
    return int(mine[0]) if len(mine) else row


def _first_rows(flow: npt.NDArray[np.int32], wanted: npt.NDArray[np.int32]) -> Ints:
    """First row of each connection, correct for the wanted ones."""
    first = np.full(int(flow.max()) // 2 + 1, len(flow), np.int64)
    first[flow[::-1] >> 1] = np.arange(len(flow) - 1, -1, -1)
    return first
