"""Parse the link, IP and TCP headers of whole batches of packets.

Supported: Ethernet with VLAN tags, Linux cooked v1 and v2, loopback, raw IP; IPv4 with options, IPv6 with
extension headers; the inner packets of tunnels (see ``tunnels``); frames truncated by the snaplen; GSO
super-frames, also those with IP length 0 (their length on the wire is used). Checksums are ignored: with
transmit offload they are wrong in every capture from the sending host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import U16, Array, Flags, Ints, header_type, overlapping
from daskwire.decoder.file.records import PEEK, Records
from daskwire.decoder.net.packets.control import note_control
from daskwire.decoder.net.packets.layers import (
    BAD_IP,
    CUT_IP,
    CUT_TCP,
    FRAGMENTS,
    NO_IP,
    TOO_DEEP,
    Batch,
    Internet,
    Layer,
    Shared,
    ethertype_reasons,
    gather,
    inside,
    link_reason,
    some,
    u8,
    u16,
    u32,
)
from daskwire.decoder.net.packets.tcp_options import read_options
from daskwire.decoder.net.segments import Segments, Tally

MARGIN = 128  # bytes that a gather may read beyond a packet
MAX_DEPTH = 4  # tunnels within tunnels
IPV4, IPV6, TCP = 0x0800, 0x86DD, 6
VLAN = (0x8100, 0x88A8, 0x9100)
ETHERNET_HEADER, IPV4_HEADER, IPV6_HEADER, TCP_HEADER = 14, 20, 40, 20
ETHERNET, NULL, LOOP, SLL, SLL2 = 1, 0, 108, 113, 276
RAW = {12: 0, 14: 0, 101: 0, 228: 0, 229: 0, NULL: 4, LOOP: 4}  # link type: where the IP header begins
LINKS = {  # link type: bytes up to the end of the field with the payload's type
    ETHERNET: ETHERNET_HEADER, SLL: 16, SLL2: 2, **{link: at + 1 for link, at in RAW.items()}
}  # fmt: skip
EXTENSIONS = (0, 43, 60, 135)  # IPv6 headers that may stand before TCP

IPV4_FIELDS = header_type(
    IPV4_HEADER, version_size=("u1", 0), length=(">u2", 2), identification=(">u2", 4), fragment=(">u2", 6),
    protocol=("u1", 9), source=(">u4", 12), destination=(">u4", 16),
)  # fmt: skip
TCP_FIELDS = header_type(  # with the timestamp option, which nearly all segments have
    TCP_HEADER + 12, source=(">u2", 0), destination=(">u2", 2), seq=(">u4", 4), ack=(">u4", 8),
    size=("u1", 12), flags=(">u2", 12), window=(">u2", 14), option=(">u4", 20), tsval=(">u4", 24),
    tsecr=(">u4", 28),
)  # fmt: skip
IP_AT, TCP_AT = ETHERNET_HEADER, ETHERNET_HEADER + IPV4_HEADER
PLAIN = header_type(PEEK, ethertype=(">u2", IP_AT - 2), ip=(IPV4_FIELDS, IP_AT), tcp=(TCP_FIELDS, TCP_AT))
MACS = header_type(
    PEEK, destination_high=(">u2", 0), destination_low=(">u4", 2), source_high=(">u2", 6),
    source_low=(">u4", 8),
)  # fmt: skip
ARP, ARP_MAC, ARP_ADDRESS, ARP_SIZE = (
    0x0806,
    8,
    14,
    28,
)  # EtherType; sender's fields and size of an ARP packet


def parse_segments(
    view: memoryview, base: int, records: Records, shared: Shared, file: int = 0
) -> Iterator[Segments]:
    """Yield the TCP segments of a batch of packets.

    Args:
        view: the file.
        base: address of the file, see ``daskwire.decoder.file.source``.
        records: the packets.
        shared: collects connections, MAC addresses, capture points and counts.
        file: index of the file.
    """
    if not len(records.time_ns):
        return
    tally = shared.tally
    tally.packets += len(records.time_ns)
    tally.bytes += int(records.length.sum())
    tally.first_ns = min(tally.first_ns, int(records.time_ns.min()))
    tally.last_ns = max(tally.last_ns, int(records.time_ns.max()))
    ends = records.offset + records.captured
    safe = int(np.searchsorted(ends, len(view) - MARGIN))  # for later packets a gather would leave the file
    if safe:
        yield from _parse(Batch(view, base, records.take(slice(safe)), shared, file))
    if safe < len(ends):
        shift = int(records.offset[safe])
        tail = memoryview(bytes(view[shift:]) + bytes(MARGIN))
        last = records.take(slice(safe, None))
        last = replace(last, offset=last.offset - shift)
        yield from _parse(Batch(tail, base + shift, last, shared, file))


def _parse(batch: Batch) -> Iterator[Segments]:
    """Parse plain packets from the bytes read with the record headers, and the others layer by layer."""
    records = batch.records
    if records.link == ETHERNET:
        plain = _is_plain(records)
        if plain.all():
            yield _plain(batch)
            return
        if plain.any():
            yield _plain(replace(batch, records=records.take(plain)))
        records = records.take(~plain)
    yield from _frames(replace(batch, records=records), _layer(records), records.link)


def _is_plain(records: Records) -> Flags:
    """Select the packets that are Ethernet, IPv4 without options, TCP, and not fragments."""
    head = records.peek.view(PLAIN)
    ip = head["ip"]
    plain = (head["ethertype"] == IPV4) & (ip["version_size"] == 0x45) & (ip["protocol"] == TCP) & _whole(ip)
    return np.asarray(plain & (records.captured >= TCP_AT + TCP_HEADER), np.bool_)


def _plain(batch: Batch) -> Segments:
    """Parse packets that are all plain."""
    head, layer = batch.records.peek.view(PLAIN), _layer(batch.records)
    packets = _internet(head["ip"], layer.moved(layer.at + IP_AT), IPV4_HEADER)
    return _segments(batch, packets, head["tcp"])


def _layer(records: Records) -> Layer:
    """Return the lowest layer: whole frames."""
    at = records.offset
    return Layer(at, at + records.captured, at + records.length, np.arange(len(at)))


def _frames(batch: Batch, layer: Layer, link: int, depth: int = 0) -> Iterator[Segments]:
    """Parse packets of one link type, including tunnels."""
    above, kind = _network_layer(batch.view, layer, link)
    whole = above.at + IPV4_HEADER <= above.end
    _count_others(batch.shared.tally, layer, kind, whole, link)
    if link == ETHERNET and depth == 0 and (kind == ARP).any():
        _note_arp(batch, some(above, kind == ARP))
    kind = kind * whole
    for ethertype, parse in ((IPV4, _ipv4), (IPV6, _ipv6)):
        selected = kind == ethertype
        if selected.any():
            packets = parse(batch, some(above, selected))
            tcp = packets.protocol == TCP
            yield from _tcp(batch, some(packets, tcp), depth)
            if tcp.all():
                continue
            if depth == MAX_DEPTH:
                batch.shared.tally.skipped[TOO_DEEP] += int((~tcp).sum())
                continue
            note_control(batch, some(packets, ~tcp))
            for inner_link, inner_layer in inside(batch, some(packets, ~tcp)):
                yield from _frames(batch, inner_layer, inner_link, depth + 1)


def _note_macs(batch: Batch, row: Ints, flow: npt.NDArray[np.int32], time_ns: Ints) -> None:
    head = batch.records.peek.view(MACS)
    source, destination = (
        head[f"{end}_high"].astype(np.uint64) << np.uint64(32) | head[f"{end}_low"]
        for end in ("source", "destination")
    )
    batch.shared.macs.note(flow, batch.addresses[row], time_ns, source[row], destination[row])


def _note_arp(batch: Batch, above: Layer) -> None:
    """Note which MAC address announces which IPv4 address."""
    whole = above.at + ARP_SIZE <= above.end
    at, row = above.at[whole], above.row[whole]
    mac = u16(batch.view, at + ARP_MAC).astype(np.uint64) << np.uint64(32) | u32(batch.view, at + ARP_MAC + 2)
    address = u32(batch.view, at + ARP_ADDRESS)
    sender = address != 0  # zero: a probe
    own = row[sender]
    batch.shared.macs.note_arp(batch.addresses[own], batch.records.time_ns[own], address[sender], mac[sender])


def _count_others(tally: Tally, layer: Layer, kind: U16, whole: Flags, link: int) -> None:
    """Count the packets without IP, and those truncated before the end of the IP header."""
    if link not in LINKS:
        tally.skipped[link_reason(link)] += len(kind)
        return
    ip = (kind == IPV4) | (kind == IPV6)
    if (ip & whole).all():
        return
    typed = layer.at + LINKS[link] <= layer.end  # False if the type field lies beyond the captured bytes
    tally.skipped[CUT_IP] += int((~typed | (ip & ~whole)).sum())
    others = typed & ~ip
    if others.any():
        tally.skipped.update({NO_IP: int(others.sum())} if link in RAW else ethertype_reasons(kind[others]))


def _network_layer(view: memoryview, layer: Layer, link: int) -> tuple[Layer, U16]:
    """Return where IP begins, and the EtherType (0 for an unknown link type).

    If a packet was truncated before its type field, the type is read from the bytes that follow; see
    ``_count_others``.
    """
    if link == ETHERNET:
        at, type_at = layer.at + ETHERNET_HEADER, layer.at + 12
    elif link in (SLL, SLL2):
        at, type_at = layer.at + (16 if link == SLL else 20), layer.at + (14 if link == SLL else 0)
    elif link in RAW:
        at = layer.at + RAW[link]
        version = u8(view, at) >> 4
        kind = np.where(version == 4, IPV4, np.where(version == 6, IPV6, 0)).astype(np.uint16)
        return layer.moved(at), kind
    else:
        return layer, np.zeros(len(layer.at), np.uint16)
    kind = u16(view, type_at)
    for _ in range(3):  # stacked tags
        tagged = np.isin(kind, VLAN) if (kind != IPV4).any() else np.zeros(0, bool)
        if not tagged.any():
            break
        at = at + 4 * tagged
        kind = np.where(tagged, u16(view, at - 2), kind)
    return layer.moved(at), kind


def _whole(ip: Array) -> Flags:
    """Select the packets that are not fragments."""
    return np.asarray(ip["fragment"] & 0x3FFF == 0, np.bool_)


def _ipv4(batch: Batch, layer: Layer) -> Internet:
    ip = gather(batch.view, layer.at, IPV4_FIELDS)
    header = (ip["version_size"] & 15).astype(np.int64) * 4
    whole = _whole(ip)
    good = whole & (header >= IPV4_HEADER)
    if not good.all():
        batch.shared.tally.skipped[FRAGMENTS] += int((~whole).sum())
        batch.shared.tally.skipped[BAD_IP] += int((whole & ~good).sum())
    return _internet(ip[good], some(layer, good), header[good])


def _internet(ip: Array, layer: Layer, header: Ints | int) -> Internet:
    """Build IPv4 packets from their headers."""
    length = ip["length"].astype(np.int32)
    if not length.all():  # very large GSO frames have length 0
        length = np.where(length == 0, layer.wire_end - layer.at, length)
    at = layer.at + header
    return Internet(
        at=at,
        available=(layer.end - at).astype(np.int32),
        row=layer.row,
        protocol=ip["protocol"],
        above=length - header,
        length=length,
        source=ip["source"].astype(np.uint64),
        destination=ip["destination"].astype(np.uint64),
        identification=ip["identification"].astype(np.uint16),
    )


def _ipv6(batch: Batch, layer: Layer) -> Internet:
    view, whole = batch.view, layer.at + IPV6_HEADER <= layer.end
    if not whole.all():
        batch.shared.tally.skipped[CUT_IP] += int((~whole).sum())
        layer = some(layer, whole)
    raw = overlapping(view, 0, IPV6_HEADER)[layer.at].view(np.uint8).reshape(-1, IPV6_HEADER)
    payload = raw[:, 4].astype(np.int64) << 8 | raw[:, 5]
    length = np.where(payload == 0, layer.wire_end - layer.at, payload + IPV6_HEADER)
    following = raw[:, 6].copy()
    header = np.full(len(raw), IPV6_HEADER, np.int64)
    for _ in range(6):
        extended = np.isin(following, EXTENSIONS) & (layer.at + header + 8 <= layer.end)
        if not extended.any():
            break
        extension = np.where(extended, layer.at + header, layer.at)
        following = np.where(extended, u8(view, extension), following)
        header = header + np.where(extended, (u8(view, extension + 1).astype(np.int64) + 1) * 8, 0)
    return Internet(
        at=layer.at + header,
        available=(layer.end - layer.at - header).astype(np.int32),
        row=layer.row,
        protocol=following,
        above=length - header,
        length=length,
        source=batch.shared.connections.address_codes(raw[:, 8:24]),
        destination=batch.shared.connections.address_codes(raw[:, 24:40]),
        identification=np.zeros(len(raw), np.uint16),
    )


def _tcp(batch: Batch, packets: Internet, depth: int) -> Iterator[Segments]:
    whole = packets.at + TCP_HEADER <= packets.end
    if not whole.all():
        batch.shared.tally.skipped[CUT_TCP] += int((~whole).sum())
        packets = some(packets, whole)
    if len(packets.at):
        yield _segments(batch, packets, gather(batch.view, packets.at, TCP_FIELDS), depth)


def _segments(batch: Batch, packets: Internet, tcp: Array, depth: int = 0) -> Segments:
    """Build segments from IP packets and their TCP headers."""
    records = batch.records
    point = batch.shared.points.number((batch.file, records.interface, depth))
    size = tcp["size"] >> 4 << 2
    flags = tcp["flags"] & np.uint16(0x1FF)
    available = np.minimum(size, packets.available)
    tsval, tsecr, twice = read_options(batch.view, packets.at, available, tcp, flags)
    offset = packets.at + size + batch.base
    batch.shared.duplicate_sacks.note(offset[twice.row], twice.left, twice.right)
    length = np.maximum(packets.above - size, 0)
    source = packets.source << np.uint64(16) | tcp["source"]
    destination = packets.destination << np.uint64(16) | tcp["destination"]
    flow, time_ns = batch.shared.connections.flows(source, destination), records.time_ns[packets.row]
    if records.link == ETHERNET and depth == 0 and len(flow):
        _note_macs(batch, packets.row, flow, time_ns)
    return Segments(
        time_ns=time_ns,
        flow=flow,
        seq=tcp["seq"],
        ack=tcp["ack"],
        flags=flags,
        window=tcp["window"],
        length=length.astype(np.uint32),
        captured=np.maximum(np.minimum(length, packets.available - size), 0).astype(np.uint32),
        offset=offset,
        ip_bytes=packets.length.astype(np.uint32),
        frame_bytes=records.length[packets.row],
        ip_id=packets.identification,
        tsval=tsval,
        tsecr=tsecr,
        point=np.full(len(length), point, np.uint16),
    )
