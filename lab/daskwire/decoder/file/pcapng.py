"""Read the records of pcapng files: either byte order, several sections and interfaces.

Layout (https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/): blocks of type, total length, body and
total length again. Enhanced (6), simple (3) and old (2) packet blocks contain packets; an interface block (1)
contains the link type and the clock resolution; a statistics block (5) the number of lost packets; a secrets
block (10) may contain a TLS key log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from daskwire.base.arrays import U32, Array, Ints, header_type
from daskwire.base.errors import WireError
from daskwire.decoder.file.records import (
    BLOCK,
    MAX_PACKET,
    PEEK,
    SPARSE,
    Advise,
    Layout,
    Progress,
    Records,
    batches,
    diagnose,
    heads,
    index,
    mean_record,
    no_advice,
)

SECTION, INTERFACE, OLD_PACKET, SIMPLE, STATISTICS, ENHANCED, SECRETS = 0x0A0D0D0A, 1, 2, 3, 5, 6, 10
TYPE, TOTAL = 0, 1  # words of a block's header
ORDER_MAGIC = 0x1A2B3C4D
MIN_BLOCK_BYTES = 12  # a block without a body
HEADER, SIMPLE_HEADER = 28, 12  # bytes of a packet block before the packet
IF_TSRESOL, IF_TSOFFSET, ISB_IFDROP, ISB_OSDROP = 9, 14, 5, 7
TLS_KEY_LOG = 0x544C534B
NO_INTERFACE, TOO_SHORT = "unknown pcapng interface", "damaged pcapng block"
NEW_SECTION = b"\x0a\x0d\x0d\x0a"  # the same in either byte order


@dataclass(frozen=True)
class Interface:
    """An interface block: link type, snaplen (bytes, 0 for none), clock ticks per second, clock offset."""

    link: int
    snaplen: int
    per_second: int
    offset_s: int


@dataclass
class Section:
    """The section that is being read: its byte order and the interfaces described so far."""

    order: str
    interfaces: list[Interface] = field(default_factory=list)


def is_pcapng(view: memoryview) -> bool:
    """Return whether the file starts with a section header block."""
    return bytes(view[:4]) == NEW_SECTION


def blocks(view: memoryview, progress: Progress, advise: Advise = no_advice) -> Iterator[Records]:
    """Yield the packets of a file, block by block, from ``progress`` on. See ``pcap.blocks``."""
    position = progress.position
    section = progress.section if isinstance(progress.section, Section) else _section(view, 0)
    if section is None:
        raise WireError("a pcapng file without a byte-order magic")
    progress.problem = None
    sparse = mean_record(view, position, len(view), _layout(section.order)) > SPARSE
    while position < len(view):
        if bytes(view[position : position + 4]) == NEW_SECTION:
            following = _section(view, position)
            if following is None:
                progress.problem, progress.damaged = diagnose(
                    view, position, _layout(section.order), "block", MIN_BLOCK_BYTES
                )
                return
            progress.section = section = following
        layout = _layout(section.order)
        stop = min(position + BLOCK, len(view))
        advise(position, stop, sparse)
        records = index(view, position, stop, layout)
        begin = position
        for batch, after in batches(records):
            head = heads(view, batch, layout).view(_header(section.order))
            number = _section_end(head["words"], bool(batch[0] == begin))
            progress.position = after if number == len(batch) else int(batch[number])
            yield from _packets(view, batch[:number], head[:number], section, progress)
            if number < len(batch):
                break
        position = progress.position
        if position == begin or (position < stop and bytes(view[position : position + 4]) != NEW_SECTION):
            progress.problem, progress.damaged = diagnose(view, position, layout, "block", MIN_BLOCK_BYTES)
            return


def _section(view: memoryview, position: int) -> Section | None:
    """Return the section that begins here, None without a byte-order magic."""
    magic = bytes(view[position + 8 : position + 12])
    return next((Section(order) for order in "<>" if magic == struct.pack(order + "I", ORDER_MAGIC)), None)


def _layout(order: str) -> Layout:
    unpack_header = struct.Struct(order + "2I").unpack_from
    unpack_word = struct.Struct(order + "I").unpack_from

    def follow(view: memoryview, position: int) -> int:
        if position + MIN_BLOCK_BYTES > len(view):
            return -1
        _, total = unpack_header(view, position)
        if total < MIN_BLOCK_BYTES or total % 4 or total > MAX_PACKET:
            return -1
        end: int = position + total
        return end if end > len(view) or unpack_word(view, end - 4)[0] == total else -1

    def pattern(view: memoryview, position: int) -> tuple[bytes, int]:
        return struct.pack(order + "I", ENHANCED), 0

    return Layout(order, 4, 0, HEADER + PEEK, pattern, follow)


def _header(order: str) -> np.dtype[np.void]:
    """Return the dtype of a block's start: its words, and the packet in a simple block and in the others."""
    packet, words = f"V{PEEK}", f"({HEADER // 4},){order}u4"
    return header_type(
        HEADER + PEEK, words=(words, 0), simple=(packet, SIMPLE_HEADER), packet=(packet, HEADER)
    )


def _section_end(words: U32, at_start: bool) -> int:
    """Count the blocks before the next section, which may have another byte order and other interfaces.

    Args:
        words: the header words of some blocks.
        at_start: the first block is the header of the current section.
    """
    sections = np.flatnonzero(words[at_start:, TYPE] == SECTION)
    return int(sections[0]) + at_start if len(sections) else len(words)


def _packets(
    view: memoryview, position: Ints, head: Array, section: Section, progress: Progress
) -> Iterator[Records]:
    """Interpret blocks in order. Packets between two other blocks are parsed together."""
    kind, total = head["words"][:, TYPE], head["words"][:, TOTAL]
    long = ((kind == ENHANCED) | (kind == OLD_PACKET)) & (total >= 32)
    packet = long | ((kind == SIMPLE) & (total >= 16))
    begin = 0
    for other in [*np.flatnonzero(~packet).tolist(), len(kind)]:
        if other > begin:
            yield from _run(position[begin:other], head[begin:other], section, progress)
        if other < len(kind):
            _describe(view, int(position[other]), int(kind[other]), section, progress)
        begin = other + 1


def _describe(view: memoryview, position: int, kind: int, section: Section, progress: Progress) -> None:
    total = struct.unpack_from(section.order + "I", view, position + 4)[0]
    body = bytes(view[position + 8 : position + total - 4])
    if kind == INTERFACE and len(body) >= 8:
        section.interfaces.append(_interface(body, section.order))
    elif kind == STATISTICS and len(body) >= 12:
        options = _options(body[12:], section.order)
        dropped = [
            int.from_bytes(options[c], "little" if section.order == "<" else "big")
            for c in (ISB_IFDROP, ISB_OSDROP)
            if c in options
        ]
        progress.dropped = (progress.dropped or 0) + sum(dropped)
    elif kind == SECRETS and len(body) >= 8:
        secrets_type, size = struct.unpack_from(section.order + "2I", body)
        progress.secrets += body[8 : 8 + size] if secrets_type == TLS_KEY_LOG else b""
    elif kind in (ENHANCED, SIMPLE, OLD_PACKET):
        progress.skipped[TOO_SHORT] += 1


def _interface(body: bytes, order: str) -> Interface:
    link, _, snaplen = struct.unpack_from(order + "HHI", body)
    options = _options(body[8:], order)
    resolution = options.get(IF_TSRESOL, b"\x06")[:1] or b"\x06"
    power = resolution[0] & 0x7F
    per_second = 2 ** min(power, 62) if resolution[0] & 0x80 else 10 ** min(power, 18)
    offset = options.get(IF_TSOFFSET, b"").ljust(8, b"\0")[:8]
    return Interface(link, snaplen, per_second, struct.unpack(order + "q", offset)[0])


def _options(body: bytes, order: str) -> dict[int, bytes]:
    options: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(body):
        code, size = struct.unpack_from(order + "HH", body, at)
        if code == 0:
            break
        options[code] = body[at + 4 : at + 4 + size]
        at += 4 + (size + 3) // 4 * 4
    return options


def _run(positions: Ints, head: Array, section: Section, progress: Progress) -> Iterator[Records]:
    """Parse consecutive packet blocks in batches of one interface and block type.

    Simple packet blocks belong to the first interface. Without its interface block, a packet has neither a
    link type nor a time.
    """
    kind, interface = head["words"][:, TYPE], head["words"][:, 2].astype(np.int64)
    interface[kind == OLD_PACKET] &= 0xFFFF
    interface[kind == SIMPLE] = 0
    changes = np.flatnonzero(np.diff(interface * 8 + (kind == SIMPLE))) + 1
    for group in np.split(np.arange(len(positions)), changes) if len(changes) else [slice(None)]:
        number = int(interface[group][0])
        if number < len(section.interfaces):
            yield replace(_batch(positions[group], head[group], section.interfaces[number]), interface=number)
        else:
            progress.skipped[NO_INTERFACE] += len(positions[group])


def _batch(positions: Ints, head: Array, interface: Interface) -> Records:
    words = head["words"].astype(np.int64)
    if words[0, TYPE] == SIMPLE:
        length, data, peek = words[:, 2], SIMPLE_HEADER, head["simple"]
        captured = np.minimum(length, interface.snaplen or MAX_PACKET)
        time_ns = np.zeros(len(positions), np.int64)
    else:
        time_ns = _nanoseconds(words[:, 3] << 32 | words[:, 4], interface)
        captured, length, data, peek = words[:, 5], words[:, 6], HEADER, head["packet"]
    captured = np.clip(captured, 0, words[:, TOTAL] - 4 - data)
    return Records(
        time_ns=time_ns,
        offset=positions + data,
        captured=captured.astype(np.uint32),
        length=length.astype(np.uint32),
        peek=peek,
        link=interface.link,
    )


def _nanoseconds(ticks: Ints, interface: Interface) -> Ints:
    rate = interface.per_second
    seconds, rest = np.divmod(ticks, rate)
    fraction = (
        rest * (1_000_000_000 // rate)
        if rate <= 1_000_000_000 and 1_000_000_000 % rate == 0
        else (rest.astype(np.float64) * (1e9 / rate)).astype(np.int64)
    )
    return np.asarray((seconds + interface.offset_s) * 1_000_000_000 + fraction, np.int64)
