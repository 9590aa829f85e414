"""From packets to TCP segments: link, IP and TCP headers of whole blocks of packets at once.

One gather of a few bytes at computed places replaces a loop over packets; the bytes become rows of native
32-bit words, one row per place in the header, on which all else is arithmetic. Understood: Ethernet with VLAN
tags, Linux cooked v1/v2, loopback, raw IP; IPv4 with options, IPv6 with extension headers; frames cut by
the snaplen; GSO super-frames and the IP length 0 that very large ones carry (the length on the wire is used
then). Checksums are not looked at: with transmit offload they are wrong in any capture made on the sending
host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lab.wire.arrays import U8, U16, U32, U64, Array, Flags, Ints, overlapping
from lab.wire.file.records import AT_ONCE, Records
from lab.wire.net.connections import Connections
from lab.wire.net.segments import Segments, Tally
from lab.wire.net.tcp_options import read_options

MARGIN = 128  # bytes that a gather may look past a packet
IPV4, IPV6, TCP = 0x0800, 0x86DD, 6
VLAN = (0x8100, 0x88A8, 0x9100)
ETHERNET_HEADER = 14
ETHERNET, NULL, LOOP, SLL, SLL2 = 1, 0, 108, 113, 276
RAW = {12: 0, 14: 0, 101: 0, 228: 0, 229: 0, NULL: 4, LOOP: 4}  # link type: where the IP header begins
EXTENSIONS = (0, 43, 60, 135)  # IPv6 headers that may stand before TCP

# Places of the 32-bit words of a header, with what they hold from high to low.
VERSION_LENGTH, ID_FRAGMENT, TTL_PROTO, SOURCE, DESTINATION = range(5)  # IPv4
PORTS, SEQ, ACKED, FLAGS_WINDOW = range(4)  # TCP; then checksum and urgent pointer, then options
IPV4_WORDS, TCP_WORDS = 5, 8
TYPE_AT = 10  # in an Ethernet frame: two bytes of address, the EtherType, then IP


@dataclass(frozen=True)
class Layer:
    """Packets that are on their way up: where the next header begins, in arrays of one length."""

    at: Ints
    end: Ints  # end of the captured bytes
    wire_end: Ints  # end of the bytes on the wire
    row: Ints  # index of the packet in its batch

    def take(self, which: Array | slice) -> Layer:
        """Some of the packets."""
        return Layer(self.at[which], self.end[which], self.wire_end[which], self.row[which])

    def moved(self, at: Ints) -> Layer:
        """The same packets with the next header somewhere else."""
        return Layer(at, self.end, self.wire_end, self.row)


def segments(
    view: memoryview, base: int, records: Records, table: Connections, tally: Tally
) -> Iterator[Segments]:
    """The TCP segments of a batch of packets. ``base`` is added to payload offsets (the file's address)."""
    if not len(records.time_ns):
        return
    tally.packets += len(records.time_ns)
    tally.bytes += int(records.length.sum())
    tally.first_ns = min(tally.first_ns, int(records.time_ns.min()))
    tally.last_ns = max(tally.last_ns, int(records.time_ns.max()))
    ends = records.offset + records.captured
    safe = int(np.searchsorted(ends, len(view) - MARGIN))  # a gather of the last packets would leave the file
    for start in range(0, safe, AT_ONCE):
        yield from _parse(view, 0, base, records, slice(start, min(start + AT_ONCE, safe)), table, tally)
    if safe < len(ends):
        shift = int(records.offset[safe])
        tail = memoryview(bytes(view[shift:]) + bytes(MARGIN))
        yield from _parse(tail, shift, base, records, slice(safe, len(ends)), table, tally)


def gather(view: memoryview, at: Ints, count: int) -> U32:
    """``count`` big-endian 32-bit words at many places, copied together: a ``(count, n)`` array."""
    return native(overlapping(view, 0, 4 * count)[at].view(np.uint8).reshape(-1, 4 * count))


def native(raw: U8) -> U32:
    """Big-endian 32-bit words, a row of bytes for each packet, as native ones, a row for each word."""
    return raw.view(">u4").T.astype(np.uint32, order="C")


def _u16(view: memoryview, at: Ints) -> U16:
    every: U16 = np.ndarray((len(view) - 1,), ">u2", view, 0, (1,))
    return every[at].astype(np.uint16)


def _u8(view: memoryview, at: Ints) -> U8:
    return np.frombuffer(view, np.uint8)[at]


def _parse(
    view: memoryview, shift: int, base: int, records: Records, rows: slice, table: Connections, tally: Tally
) -> Iterator[Segments]:
    """One cache-sized batch. ``view[0]`` is byte ``shift`` of the file."""
    offset = records.offset[rows] - shift
    captured, wire = records.captured[rows], records.length[rows]
    layer = Layer(offset, offset + captured, offset + wire, np.arange(rows.start, rows.start + len(offset)))
    links = records.link[rows]
    if links[0] == ETHERNET and (links == ETHERNET).all():
        layer, found = _plain(view, layer, records.peek[rows], base + shift, records, table)
        yield from found
        links = records.link[layer.row]
        if not len(links):
            return
    for link in [int(links[0])] if (links == links[0]).all() else np.unique(links).tolist():
        mine = layer if links[0] == link and (links == link).all() else layer.take(links == link)
        layer3, kind = _network_layer(view, mine, link)
        for ethertype, parse in ((IPV4, _ipv4), (IPV6, _ipv6)):
            chosen = kind == ethertype
            if chosen.any():
                packets = layer3 if chosen.all() else layer3.take(chosen)
                yield from parse(view, packets, base + shift, records, table, tally)
        tally.other["not IP"] += int(((kind != IPV4) & (kind != IPV6)).sum())


def _plain(
    view: memoryview, layer: Layer, peek: U8, base: int, records: Records, table: Connections
) -> tuple[Layer, list[Segments]]:
    """Ethernet, IPv4 and TCP without IP options, which nearly all packets are, from what was read along with
    the records; gives the others.
    """
    head = native(peek[:, TYPE_AT : TYPE_AT + 4 * (1 + IPV4_WORDS + TCP_WORDS)])
    ip = head[1:]
    plain = (head[0] & 0xFFFF == IPV4) & (ip[VERSION_LENGTH] >> 24 == 0x45) & _unfragmented_tcp(ip)
    plain &= layer.at + 54 <= layer.end
    if plain.all():
        rest = layer.take(slice(0))
    else:
        rest, layer, ip = layer.take(~plain), layer.take(plain), ip[:, plain]
    if not len(layer.at):
        return rest, []
    at = layer.at + ETHERNET_HEADER
    length = _total_length(ip, layer.wire_end - at)
    return rest, [
        _segments(view, layer, at + 20, ip[IPV4_WORDS:], 20, length, *_ends(ip), base, records, table)
    ]


def _unfragmented_tcp(ip: U32) -> Flags:
    return np.asarray((ip[ID_FRAGMENT] & 0x3FFF == 0) & (ip[TTL_PROTO] >> 16 & 0xFF == TCP), np.bool_)


def _total_length(ip: U32, on_wire: Ints) -> Ints:
    """IP's length; what was on the wire where that is 0."""
    length = (ip[VERSION_LENGTH] & 0xFFFF).astype(np.int64)
    return length if length.all() else np.where(length == 0, on_wire, length)


def _ends(ip: U32) -> tuple[U64, U64, U16]:
    """Codes of source and destination address, and the identification."""
    ids = (ip[ID_FRAGMENT] >> 16).astype(np.uint16)
    return ip[SOURCE].astype(np.uint64), ip[DESTINATION].astype(np.uint64), ids


def _network_layer(view: memoryview, layer: Layer, link: int) -> tuple[Layer, U16]:
    """Where IP begins, and the EtherType; 0 where not captured or of an unknown link type."""
    if link == ETHERNET:
        at, type_at = layer.at + ETHERNET_HEADER, layer.at + 12
    elif link in (SLL, SLL2):
        at, type_at = layer.at + (16 if link == SLL else 20), layer.at + (14 if link == SLL else 0)
    elif link in RAW:
        at = layer.at + RAW[link]
        version = _u8(view, at) >> 4
        kind = np.where(version == 4, IPV4, np.where(version == 6, IPV6, 0)).astype(np.uint16)
        return layer.moved(at), np.where(at + 20 <= layer.end, kind, 0).astype(np.uint16)
    else:
        return layer, np.zeros(len(layer.at), np.uint16)
    kind = _u16(view, type_at)
    for _ in range(3):  # stacked tags
        tagged = np.isin(kind, VLAN) if (kind != IPV4).any() else np.zeros(0, bool)
        if not tagged.any():
            break
        at = at + 4 * tagged
        kind = np.where(tagged, _u16(view, at - 2), kind)
    return layer.moved(at), np.where(at + 20 <= layer.end, kind, 0).astype(np.uint16)


def _ipv4(
    view: memoryview, layer: Layer, base: int, records: Records, table: Connections, tally: Tally
) -> Iterator[Segments]:
    ip = gather(view, layer.at, IPV4_WORDS)
    header = (ip[VERSION_LENGTH] >> 24 & 15).astype(np.int64) * 4
    ok = _unfragmented_tcp(ip) & (header >= 20)
    if not ok.all():
        tally.other["fragments"] += int((ip[ID_FRAGMENT] & 0x3FFF != 0).sum())
        tally.other["other IP"] += int((ip[TTL_PROTO] >> 16 & 0xFF != TCP).sum())
        layer, ip, header = layer.take(ok), ip[:, ok], header[ok]
    length = _total_length(ip, layer.wire_end - layer.at)
    yield from _tcp(view, layer, header, length, *_ends(ip), base, records, table, tally)


def _ipv6(
    view: memoryview, layer: Layer, base: int, records: Records, table: Connections, tally: Tally
) -> Iterator[Segments]:
    layer = layer.take(layer.at + 40 <= layer.end)
    if not len(layer.at):
        return
    raw = overlapping(view, 0, 40)[layer.at].view(np.uint8).reshape(-1, 40)
    payload = raw[:, 4].astype(np.int64) << 8 | raw[:, 5]
    length = np.where(payload == 0, layer.wire_end - layer.at, payload + 40)
    following = raw[:, 6].copy()
    header = np.full(len(raw), 40, np.int64)
    for _ in range(6):
        extended = np.isin(following, EXTENSIONS) & (layer.at + header + 8 <= layer.end)
        if not extended.any():
            break
        here = np.where(extended, layer.at + header, layer.at)
        following = np.where(extended, _u8(view, here), following)
        header = header + np.where(extended, (_u8(view, here + 1).astype(np.int64) + 1) * 8, 0)
    ok = following == TCP
    tally.other["other IP"] += int((~ok).sum())
    if ok.any():
        src, dst = table.address_codes(raw[ok, 8:24]), table.address_codes(raw[ok, 24:40])
        ids = np.zeros(int(ok.sum()), np.uint16)
        yield from _tcp(
            view, layer.take(ok), header[ok], length[ok], src, dst, ids, base, records, table, tally
        )


def _tcp(
    view: memoryview,
    layer: Layer,
    header: Ints,
    ip_length: Ints,
    src: U64,
    dst: U64,
    ids: U16,
    base: int,
    records: Records,
    table: Connections,
    tally: Tally,
) -> Iterator[Segments]:
    at = layer.at + header
    whole = at + 20 <= layer.end
    if not whole.all():
        tally.other["TCP header not captured"] += int((~whole).sum())
        layer, header, ip_length, at = layer.take(whole), header[whole], ip_length[whole], at[whole]
        src, dst, ids = src[whole], dst[whole], ids[whole]
    if not len(at):
        return
    tcp = gather(view, at, TCP_WORDS)
    yield _segments(view, layer, at, tcp, header, ip_length, src, dst, ids, base, records, table)


def _segments(
    view: memoryview,
    layer: Layer,
    at: Ints,
    tcp: U32,
    header: Ints | int,
    ip_length: Ints,
    src: U64,
    dst: U64,
    ids: U16,
    base: int,
    records: Records,
    table: Connections,
) -> Segments:
    """From the words of TCP headers, copied from the places ``at``, to segments."""
    size = (tcp[FLAGS_WINDOW] >> 28).astype(np.uint8) * np.uint8(4)
    flags = (tcp[FLAGS_WINDOW] >> 16 & 0x1FF).astype(np.uint16)
    captured_size = np.minimum(size, layer.end - at).astype(np.uint8)
    tsval, tsecr = read_options(view, at, captured_size, tcp, flags)
    data = at + size
    length = np.maximum(ip_length - header - size, 0)
    return Segments(
        time_ns=records.time_ns[layer.row],
        flow=table.flows(src << 16 | tcp[PORTS] >> 16, dst << 16 | tcp[PORTS] & 0xFFFF),
        seq=tcp[SEQ],
        ack=tcp[ACKED],
        flags=flags,
        window=(tcp[FLAGS_WINDOW] & 0xFFFF).astype(np.uint16),
        length=length.astype(np.uint32),
        captured=np.maximum(np.minimum(length, layer.end - data), 0).astype(np.uint32),
        offset=data + base,
        ip_bytes=ip_length.astype(np.uint32),
        frame_bytes=records.length[layer.row],
        ip_id=ids,
        tsval=tsval,
        tsecr=tsecr,
    )
