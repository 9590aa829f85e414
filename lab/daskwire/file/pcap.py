"""Records of classic pcap files: microsecond or nanosecond, either byte order. Bytes in, arrays out.

Layout: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/ - a 24-byte header (magic, version, zone,
accuracy, snaplen, link type), then per packet 16 bytes (seconds, fraction, captured length, original
length) and the data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from daskwire.arrays import Ints
from daskwire.errors import WireError
from daskwire.file.lockstep import BLOCK, Layout, heads, index, mean_record
from daskwire.file.records import MAX_PACKET, PEEK, SPARSE, Advise, Progress, Records, batches, no_advice

HEADER, RECORD = 24, 16
MAGICS = {  # the first four bytes: byte order, nanoseconds per unit of the fraction
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}


def is_pcap(view: memoryview) -> bool:
    """Whether the file begins like a classic pcap."""
    return bytes(view[:4]) in MAGICS


def blocks(view: memoryview, progress: Progress, advise: Advise = no_advice) -> Iterator[Records]:
    """The packets of a file, block by block, from ``progress.position`` (0 is the beginning) on.

    Leaves in ``progress`` where the next call would go on (a file that grows) and what was wrong. Raises
    WireError when not even the file's header can be read. ``advise`` is told before each block what will be
    read.
    """
    if len(view) < HEADER:
        raise WireError("the file ends before its header does")
    order, unit_ns = MAGICS[bytes(view[:4])]
    link = struct.unpack_from(order + "I", view, 20)[0] & 0xFFFF
    layout = _layout(order, 1_000_000_000 // unit_ns)
    position = max(progress.position, HEADER)
    progress.problem = None
    sparse = mean_record(view, position, len(view), layout) > SPARSE
    while position < len(view):
        stop = min(position + BLOCK, len(view))
        advise(position, stop, sparse)
        found = index(view, position, stop, layout)
        for batch, following in batches(found):
            progress.position = following
            yield _records(view, batch, layout, unit_ns, link)
        position = progress.position = found.end
        if position < stop:
            progress.problem, progress.damaged = _why(view, position, layout)
            return


def _why(view: memoryview, position: int, layout: Layout) -> tuple[str, bool]:
    """Why there is no record, and whether that is damage rather than an end that is missing."""
    left = len(view) - position
    if left < RECORD or layout.follow(view, position) > len(view):
        return f"cut off: the last record, at byte {position}, is not whole", False
    return f"damaged at byte {position}: no record there, {left} bytes were not read", True


def _layout(order: str, fractions: int) -> Layout:
    unpack = struct.Struct(order + "4I").unpack_from
    high = 2 if order == "<" else 0

    def follow(view: memoryview, position: int) -> int:
        if position + RECORD > len(view):
            return -1
        _, fraction, captured, length = unpack(view, position)
        sane = fraction < fractions and captured <= MAX_PACKET and captured <= length
        return position + RECORD + captured if sane else -1

    def mark(view: memoryview, position: int) -> tuple[bytes, int]:
        return bytes(view[position + high : position + high + 2]), high  # these bytes change every 18 hours

    return Layout(order, 8, RECORD, RECORD + PEEK, mark, follow)


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
