"""From packets to TCP segments: link, IP and TCP headers of whole batches of packets at once.

Understood: Ethernet with VLAN tags, Linux cooked v1/v2, loopback, raw IP; IPv4 with options, IPv6 with
extension headers; what tunnels carry (see ``tunnels``); frames cut by the snaplen; GSO super-frames and the
IP length 0 that very large ones carry (the length on the wire is used then). Checksums are not looked at:
with transmit offload they are wrong in any capture made on the sending host.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lab.wire.arrays import U16, U32, Flags, Ints, overlapping
from lab.wire.file.records import AT_ONCE, Records
from lab.wire.net.connections import Connections
from lab.wire.net.layers import Batch, Internet, Layer, gather, native, some, u8, u16
from lab.wire.net.segments import Segments, Tally
from lab.wire.net.tcp_options import read_options
from lab.wire.net.tunnels import inside

MARGIN = 128  # bytes that a gather may look past a packet
DEEPEST = 4  # tunnels in tunnels
IPV4, IPV6, TCP = 0x0800, 0x86DD, 6
VLAN = (0x8100, 0x88A8, 0x9100)
ETHERNET_HEADER, IPV4_HEADER, IPV6_HEADER, TCP_HEADER = 14, 20, 40, 20
ETHERNET, NULL, LOOP, SLL, SLL2 = 1, 0, 108, 113, 276
RAW = {12: 0, 14: 0, 101: 0, 228: 0, 229: 0, NULL: 4, LOOP: 4}  # link type: where the IP header begins
EXTENSIONS = (0, 43, 60, 135)  # IPv6 headers that may stand before TCP

# Places of the 32-bit words of a header, with what they hold from high to low.
VERSION_LENGTH, ID_FRAGMENT, TTL_PROTO, SOURCE, DESTINATION = range(5)  # IPv4
PORTS, SEQ, ACKED, FLAGS_WINDOW = range(4)  # TCP; then checksum and urgent pointer, then options
IPV4_WORDS, TCP_WORDS = 5, 8
TYPE_AT = 10  # in an Ethernet frame: two bytes of address, the EtherType, then IP


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
    batch = Batch(view, base, records, table, tally)
    for start in range(0, safe, AT_ONCE):
        yield from _parse(batch, 0, slice(start, min(start + AT_ONCE, safe)))
    if safe < len(ends):
        shift = int(records.offset[safe])
        tail = memoryview(bytes(view[shift:]) + bytes(MARGIN))
        batch = Batch(tail, base + shift, records, table, tally)
        yield from _parse(batch, shift, slice(safe, len(ends)))


def _parse(batch: Batch, shift: int, rows: slice) -> Iterator[Segments]:
    """One cache-sized part of a batch. The first byte of its view is byte ``shift`` of the file."""
    records = batch.records
    at = records.offset[rows] - shift
    end, wire_end = at + records.captured[rows], at + records.length[rows]
    layer, links = Layer(at, end, wire_end, np.arange(rows.start, rows.start + len(at))), records.link[rows]
    if links[0] == ETHERNET and (links == ETHERNET).all():
        layer, found = _plain(batch, layer, rows)
        yield from found
        links = records.link[layer.row]
    for link in np.unique(links).tolist():
        yield from _frames(batch, some(layer, links == link), link)


def _plain(batch: Batch, layer: Layer, rows: slice) -> tuple[Layer, list[Segments]]:
    """Ethernet, IPv4 and TCP without IP options, which nearly all packets are, from what was read along with
    the records; gives the others.
    """
    peek = batch.records.peek[rows]
    head = native(peek[:, TYPE_AT : TYPE_AT + 4 * (1 + IPV4_WORDS + TCP_WORDS)])
    ip = head[1:]
    plain = (head[0] & 0xFFFF == IPV4) & (ip[VERSION_LENGTH] >> 24 == 0x45) & _whole(ip)
    plain &= ip[TTL_PROTO] >> 16 & 0xFF == TCP
    plain &= layer.at + ETHERNET_HEADER + IPV4_HEADER + TCP_HEADER <= layer.end
    rest = some(layer, ~plain)
    if len(rest.at):
        layer, ip = some(layer, plain), ip[:, plain]
    if not len(layer.at):
        return rest, []
    packets = _internet(ip, layer.moved(layer.at + ETHERNET_HEADER), IPV4_HEADER)
    return rest, [_segments(batch, packets, ip[IPV4_WORDS:])]


def _frames(batch: Batch, layer: Layer, link: int, depth: int = 0) -> Iterator[Segments]:
    """Packets of one link type, whatever is in them."""
    above, kind = _network_layer(batch.view, layer, link)
    for ethertype, parse in ((IPV4, _ipv4), (IPV6, _ipv6)):
        chosen = kind == ethertype
        if chosen.any():
            packets = parse(batch, some(above, chosen))
            tcp = packets.protocol == TCP
            yield from _tcp(batch, some(packets, tcp))
            if depth < DEEPEST and not tcp.all():
                for inner, within in inside(batch, some(packets, ~tcp)):
                    yield from _frames(batch, within, inner, depth + 1)
    batch.tally.other["not IP"] += int(((kind != IPV4) & (kind != IPV6)).sum())


def _network_layer(view: memoryview, layer: Layer, link: int) -> tuple[Layer, U16]:
    """Where IP begins, and the EtherType; 0 where not captured or of an unknown link type."""
    if link == ETHERNET:
        at, type_at = layer.at + ETHERNET_HEADER, layer.at + 12
    elif link in (SLL, SLL2):
        at, type_at = layer.at + (16 if link == SLL else 20), layer.at + (14 if link == SLL else 0)
    elif link in RAW:
        at = layer.at + RAW[link]
        version = u8(view, at) >> 4
        kind = np.where(version == 4, IPV4, np.where(version == 6, IPV6, 0)).astype(np.uint16)
        return layer.moved(at), np.where(at + IPV4_HEADER <= layer.end, kind, 0).astype(np.uint16)
    else:
        return layer, np.zeros(len(layer.at), np.uint16)
    kind = u16(view, type_at)
    for _ in range(3):  # stacked tags
        tagged = np.isin(kind, VLAN) if (kind != IPV4).any() else np.zeros(0, bool)
        if not tagged.any():
            break
        at = at + 4 * tagged
        kind = np.where(tagged, u16(view, at - 2), kind)
    return layer.moved(at), np.where(at + IPV4_HEADER <= layer.end, kind, 0).astype(np.uint16)


def _whole(ip: U32) -> Flags:
    """Whether packets are no fragments."""
    return np.asarray(ip[ID_FRAGMENT] & 0x3FFF == 0, np.bool_)


def _ipv4(batch: Batch, layer: Layer) -> Internet:
    ip = gather(batch.view, layer.at, IPV4_WORDS)
    header = (ip[VERSION_LENGTH] >> 24 & 15).astype(np.int64) * 4
    whole = _whole(ip)
    batch.tally.other["fragments"] += int((~whole).sum())
    good = whole & (header >= IPV4_HEADER)
    return _internet(ip[:, good], some(layer, good), header[good])


def _internet(ip: U32, layer: Layer, header: Ints | int) -> Internet:
    """IPv4 packets from the words of their headers."""
    length = (ip[VERSION_LENGTH] & 0xFFFF).astype(np.int64)
    if not length.all():  # of very large ones only the wire knows it
        length = np.where(length == 0, layer.wire_end - layer.at, length)
    return Internet(
        at=layer.at + header,
        end=layer.end,
        row=layer.row,
        protocol=(ip[TTL_PROTO] >> 16).astype(np.uint8),
        above=length - header,
        length=length,
        source=ip[SOURCE].astype(np.uint64),
        destination=ip[DESTINATION].astype(np.uint64),
        identification=(ip[ID_FRAGMENT] >> 16).astype(np.uint16),
    )


def _ipv6(batch: Batch, layer: Layer) -> Internet:
    view, layer = batch.view, some(layer, layer.at + IPV6_HEADER <= layer.end)
    raw = overlapping(view, 0, IPV6_HEADER)[layer.at].view(np.uint8).reshape(-1, IPV6_HEADER)
    payload = raw[:, 4].astype(np.int64) << 8 | raw[:, 5]
    length = np.where(payload == 0, layer.wire_end - layer.at, payload + IPV6_HEADER)
    following = raw[:, 6].copy()
    header = np.full(len(raw), IPV6_HEADER, np.int64)
    for _ in range(6):
        extended = np.isin(following, EXTENSIONS) & (layer.at + header + 8 <= layer.end)
        if not extended.any():
            break
        here = np.where(extended, layer.at + header, layer.at)
        following = np.where(extended, u8(view, here), following)
        header = header + np.where(extended, (u8(view, here + 1).astype(np.int64) + 1) * 8, 0)
    return Internet(
        at=layer.at + header,
        end=layer.end,
        row=layer.row,
        protocol=following,
        above=length - header,
        length=length,
        source=batch.table.address_codes(raw[:, 8:24]),
        destination=batch.table.address_codes(raw[:, 24:40]),
        identification=np.zeros(len(raw), np.uint16),
    )


def _tcp(batch: Batch, packets: Internet) -> Iterator[Segments]:
    whole = packets.at + TCP_HEADER <= packets.end
    if not whole.all():
        batch.tally.other["TCP header not captured"] += int((~whole).sum())
        packets = some(packets, whole)
    if len(packets.at):
        yield _segments(batch, packets, gather(batch.view, packets.at, TCP_WORDS))


def _segments(batch: Batch, packets: Internet, tcp: U32) -> Segments:
    """From IP packets and the words of the TCP headers in them to segments."""
    records = batch.records
    size = (tcp[FLAGS_WINDOW] >> 28).astype(np.uint8) * np.uint8(4)
    flags = (tcp[FLAGS_WINDOW] >> 16 & 0x1FF).astype(np.uint16)
    captured_size = np.minimum(size, packets.end - packets.at).astype(np.uint8)
    tsval, tsecr = read_options(batch.view, packets.at, captured_size, tcp, flags)
    data = packets.at + size
    length = np.maximum(packets.above - size, 0)
    source = packets.source << 16 | tcp[PORTS] >> 16
    destination = packets.destination << 16 | tcp[PORTS] & 0xFFFF
    return Segments(
        time_ns=records.time_ns[packets.row],
        flow=batch.table.flows(source, destination),
        seq=tcp[SEQ],
        ack=tcp[ACKED],
        flags=flags,
        window=(tcp[FLAGS_WINDOW] & 0xFFFF).astype(np.uint16),
        length=length.astype(np.uint32),
        captured=np.maximum(np.minimum(length, packets.end - data), 0).astype(np.uint32),
        offset=data + batch.base,
        ip_bytes=packets.length.astype(np.uint32),
        frame_bytes=records.length[packets.row],
        ip_id=packets.identification,
        tsval=tsval,
        tsecr=tsecr,
    )
