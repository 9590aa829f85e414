"""Read the records of classic pcap files: microseconds or nanoseconds, either byte order.

Layout (https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/): a 24-byte header (magic, version, zone,
accuracy, snaplen, link type), then per packet 16 bytes (seconds, fraction, captured length, original
length) and the data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from daskwire.base.arrays import Ints
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

HEADER, RECORD = 24, 16
MAGICS = {  # the first four bytes: byte order, nanoseconds per unit of the fraction
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}


def is_pcap(view: memoryview) -> bool:
    """Return whether the file starts with the magic number of a classic pcap."""
    return bytes(view[:4]) in MAGICS


def blocks(view: memoryview, progress: Progress, advise: Advise = no_advice) -> Iterator[Records]:
    """Yield the packets of a file, block by block.

    Args:
        view: the file.
        progress: where to start; updated with the position for the next call (for a growing file) and with
            any problem.
        advise: called before each block with the bytes that will be read.

    Raises:
        WireError: the file header is incomplete.
    """
    if len(view) < HEADER:
        raise WireError("the file ends within its header")
    order, unit_ns = MAGICS[bytes(view[:4])]
    link = struct.unpack_from(order + "I", view, 20)[0] & 0xFFFF
    layout = _layout(order, 1_000_000_000 // unit_ns)
    position = max(progress.position, HEADER)
    progress.problem = None
    sparse = mean_record(view, position, len(view), layout) > SPARSE
    while position < len(view):
        stop = min(position + BLOCK, len(view))
        advise(position, stop, sparse)
        records = index(view, position, stop, layout)
        for batch, following in batches(records):
            progress.position = following
            yield _records(view, batch, layout, unit_ns, link)
        position = progress.position = records.end
        if position < stop:
            progress.problem, progress.damaged = diagnose(view, position, layout, "record", RECORD)
            return


def _layout(order: str, fractions: int) -> Layout:
    unpack = struct.Struct(order + "4I").unpack_from
    high = 2 if order == "<" else 0

    def follow(view: memoryview, position: int) -> int:
        if position + RECORD > len(view):
            return -1
        _, fraction, captured, length = unpack(view, position)
        sane = fraction < fractions and captured <= MAX_PACKET and captured <= length
        return position + RECORD + captured if sane else -1

    def pattern(view: memoryview, position: int) -> tuple[bytes, int]:
        return bytes(view[position + high : position + high + 2]), high  # these bytes change every 18 hours

    return Layout(order, 8, RECORD, RECORD + PEEK, pattern, follow)


def _records(view: memoryview, position: Ints, layout: Layout, unit_ns: int, link: int) -> Records:
    word = layout.order + "u4"
    names = ("seconds", "fraction", "captured", "length")
    head = heads(view, position, layout).view([*((name, word) for name in names), ("peek", f"V{PEEK}")])
    time_ns = head["seconds"].astype(np.int64) * 1_000_000_000
    time_ns += head["fraction"].astype(np.int64) * unit_ns
    return Records(
        time_ns=time_ns,
        offset=position + RECORD,
        captured=head["captured"].astype(np.uint32),
        length=head["length"].astype(np.uint32),
        peek=head["peek"],
        link=link,
    )
