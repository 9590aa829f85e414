"""Assign segments to connections.

A connection is a pair of endpoints (address and port). Its two directions are flows, numbered
``2 * connection + direction``. A new SYN on the same ports opens a new connection. Segments come in batches
of thousands but belong to few connections, so a small direct-mapped table answers nearly all look-ups at
once. Each answer is compared with the real endpoints: a hash collision costs time, never correctness.
"""

from __future__ import annotations

from ipaddress import ip_address

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import U8, U32, U64, Flags, Ints

SLOTS = 1 << 16
REORDERED_PACKETS = 64  # a SYN may be captured up to this many packets late
REORDERED_BYTES = 1 << 20  # bytes that the connection may have sent by then
MIX_A, MIX_B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
IPV6_CODES = 1 << 32  # lower codes are IPv4 addresses; higher ones are indices in the list of IPv6 addresses


class Connections:
    """The connections of a capture. An endpoint code is ``address code << 16 | port``.

    Attributes:
        low: per connection, the endpoint with the lower code; direction 0 is sent from there.
        high: per connection, the other endpoint.
    """

    def __init__(self) -> None:
        self.low: list[int] = []
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
        """Return the codes of IPv6 addresses, an ``(n, 16)`` array of bytes."""
        unique, inverse = np.unique(np.ascontiguousarray(raw).view("V16").ravel(), return_inverse=True)
        return np.array([self._address_code(bytes(u)) for u in unique], np.uint64)[inverse]

    def _address_code(self, address: bytes) -> int:
        if address not in self._addresses:
            self._addresses[address] = IPV6_CODES + len(self._listed)
            self._listed.append(address)
        return self._addresses[address]

    def flows(self, source: U64, destination: U64) -> npt.NDArray[np.int32]:
        """Return the flow number of each segment from its endpoints' codes."""
        upward = source > destination
        low, high = np.minimum(source, destination), np.maximum(source, destination)
        slot = (((low * MIX_A) ^ (high * MIX_B)) * MIX_A >> np.uint64(48)).astype(np.int64)
        hit = (self._slot_low[slot] == low) & (self._slot_high[slot] == high)
        if not hit.all():
            self._fill_slots(low, high, slot, ~hit)
            hit = (self._slot_low[slot] == low) & (self._slot_high[slot] == high)
        number = self._slot_number[slot]
        for row in np.flatnonzero(~hit).tolist():  # another connection occupies the slot
            number[row] = self._register(int(low[row]), int(high[row]))
        return np.asarray(number * 2 + upward, np.int32)

    def _fill_slots(self, low: U64, high: U64, slot: Ints, missing: Flags) -> None:
        rows = np.flatnonzero(missing)
        _, first = np.unique(slot[rows], return_index=True)
        for row in np.sort(rows[first]).tolist():
            free = slot[row]
            if self._slot_low[free] == 0 and self._slot_high[free] == 0:
                self._slot_low[free], self._slot_high[free] = low[row], high[row]
                self._slot_number[free] = self._register(int(low[row]), int(high[row]))

    def _register(self, low: int, high: int) -> int:
        number = self._number.get((low, high))
        return self.reopen_at(low, high) if number is None else number

    def reopen_at(self, low: int, high: int) -> int:
        """Open another connection between two endpoints and return its number."""
        self._number[low, high] = len(self.low)
        self.low.append(low)
        self.high.append(high)
        return len(self.low) - 1

    def subset(self, numbers: list[int]) -> Connections:
        """Return some of the connections, renumbered in this order. Their flows keep their directions."""
        result = Connections()
        ends = [(self.low[number], self.high[number]) for number in numbers]
        codes = sorted({end >> 16 for pair in ends for end in pair})  # so that lower codes stay lower
        new = {c: result._address_code(self._listed[c - IPV6_CODES]) for c in codes if c >= IPV6_CODES}
        for pair in ends:
            result.reopen_at(*(new.get(end >> 16, end >> 16) << 16 | end & 0xFFFF for end in pair))
        return result

    def endpoints(self, flow: int) -> tuple[str, int, str, int]:
        """Return source address, source port, destination address and destination port of a flow."""
        pair = (self.low[flow // 2], self.high[flow // 2])
        source, destination = pair if flow % 2 == 0 else pair[::-1]
        return (
            self.address(source >> 16),
            source & 0xFFFF,
            self.address(destination >> 16),
            destination & 0xFFFF,
        )

    def address(self, code: int) -> str:
        """Return the IP address with this code."""
        if code < IPV6_CODES:
            return str(ip_address(code))
        return str(ip_address(self._listed[code - IPV6_CODES]))


def split_reused(
    flow: npt.NDArray[np.int32], syn: Ints, answers: Ints, seq: U32, ack: U32, table: Connections
) -> None:
    """Renumber, in place, the segments after a SYN that reuses the ports of an earlier connection.

    Args:
        flow: flow number of each segment; changed in place.
        syn: rows of the segments with SYN and without ACK. A retransmitted SYN has the same sequence number.
        answers: rows of the segments with SYN and ACK. If a retransmitted SYN is answered with another
            sequence number, the first connection had ended, and it opens a new one.
        seq: sequence number of each segment.
        ack: acknowledgement number of each segment.
        table: receives the new connections.
    """
    connection = flow[syn] // 2
    order = np.argsort(connection, kind="stable")
    rows, owner = syn[order], connection[order]
    repeated = np.zeros(len(rows), bool)
    repeated[1:] = (
        (owner[1:] == owner[:-1]) & (flow[rows[1:]] == flow[rows[:-1]]) & (seq[rows[1:]] == seq[rows[:-1]])
    )
    answered_anew = _answered_anew(flow, rows, repeated, answers, seq)
    opens = ~repeated | answered_anew
    rows, owner, exact = rows[opens], owner[opens], answered_anew[opens]
    if not len(rows):
        return
    first = _first_rows(flow)
    reused = first[owner] < rows
    rows, owner, exact = rows[reused], owner[reused], exact[reused]
    rows = np.array(
        [
            row if is_exact else _first_of_connection(flow, row, seq, ack)
            for row, is_exact in zip(rows.tolist(), exact.tolist(), strict=True)
        ],
        np.int64,
    )
    reused = first[owner] < rows
    rows, owner = rows[reused], owner[reused]
    if not len(rows):
        return
    numbers = np.array([table.reopen_at(table.low[c], table.high[c]) for c in owner.tolist()], np.int64)
    affected = np.zeros(int(flow.max()) // 2 + 1, bool)
    affected[owner] = True
    candidates = np.flatnonzero(affected[flow // 2])
    begins = owner.astype(np.int64) << 40 | rows
    codes = (flow[candidates] // 2).astype(np.int64) << 40 | candidates
    opening = np.searchsorted(begins, codes, side="right") - 1
    moved = (opening >= 0) & (owner[np.maximum(opening, 0)] == flow[candidates] // 2)
    target = candidates[moved]
    flow[target] = (numbers[opening[moved]] * 2 + flow[target] % 2).astype(np.int32)


def _answered_anew(flow: npt.NDArray[np.int32], syn: Ints, repeated: Flags, answers: Ints, seq: U32) -> Flags:
    """Select the retransmitted SYNs whose SYN-ACK has another sequence number than the one before.

    Args:
        flow: flow number of each segment.
        syn: rows of the SYNs, by connection and in order.
        repeated: which of them repeat the one before.
        answers: rows of the SYN-ACKs.
        seq: sequence number of each segment.
    """
    result = np.zeros(len(syn), bool)
    if not repeated.any():
        return result
    suspects = set((flow[syn[repeated]] ^ 1).tolist())
    by_flow: dict[int, list[int]] = {}
    for row in answers[np.isin(flow[answers], list(suspects))].tolist():
        by_flow.setdefault(int(flow[row]), []).append(row)
    previous = 0  # sequence number of the last SYN-ACK
    for index in range(len(syn)):
        own = by_flow.get(int(flow[syn[index]]) ^ 1, [])
        is_last = index + 1 == len(syn) or not repeated[index + 1]
        stop = len(flow) if is_last else int(syn[index + 1])
        numbers = [int(seq[row]) for row in own if syn[index] < row < stop]
        if numbers:
            result[index] = bool(repeated[index]) and previous not in (0, numbers[0])
        previous = numbers[-1] if numbers else previous if repeated[index] else 0
    return result


def _first_of_connection(flow: npt.NDArray[np.int32], row: int, seq: U32, ack: U32) -> int:
    """Return the first row of the connection that the SYN in ``row`` opens.

    A NIC with several queues may deliver later packets before the SYN. Their sequence numbers are just above
    the SYN's; those of an earlier connection on the same ports are below (RFC 6528).
    """
    begin = max(row - REORDERED_PACKETS, 0)
    near = begin + np.flatnonzero(flow[begin:row] >> 1 == flow[row] >> 1)
    number = np.where(flow[near] == flow[row], seq[near], ack[near])
    step = (number - (seq[row] + np.uint32(1))).astype(np.uint32)
    foreign = np.flatnonzero(step >= REORDERED_BYTES)
    early = near[foreign[-1] + 1 :] if len(foreign) else near
    return int(early[0]) if len(early) else row


def _first_rows(flow: npt.NDArray[np.int32]) -> Ints:
    """Return the first row of each connection."""
    first = np.full(int(flow.max()) // 2 + 1, len(flow), np.int64)
    first[flow[::-1] >> 1] = np.arange(len(flow) - 1, -1, -1)
    return first
