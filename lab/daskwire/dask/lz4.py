"""LZ4 blocks, which G1 compresses large messages with.

Not by pyarrow: where a block holds less than it promises, pyarrow fills the result with uninitialised memory.
"""

from __future__ import annotations

import struct

from daskwire.dask.messagepack import UndecodableError

LARGEST = 1 << 28  # bytes that a message may become


def lz4_block(data: bytes) -> bytes:
    """Undo lz4.block.compress: 4 bytes of size, then sequences of literals and matches; raises
    UndecodableError.
    """
    if len(data) < 4:
        raise UndecodableError("lz4: no size")
    (size,) = struct.unpack_from("<I", data)
    if size > min(255 * len(data), LARGEST):
        raise UndecodableError("lz4: impossible size")
    out, at = bytearray(), 4
    try:
        while at < len(data):
            token, at = data[at], at + 1
            literals, at = _lz4_length(data, at, token >> 4)
            out += data[at : at + literals]
            at += literals
            if at >= len(data):
                break
            distance = data[at] | data[at + 1] << 8
            count, at = _lz4_length(data, at + 2, token & 15)
            _lz4_copy(out, distance, count + 4, size)
    except IndexError:
        raise UndecodableError("lz4: cut off") from None
    if len(out) != size:
        raise UndecodableError("lz4: wrong size")
    return bytes(out)


def _lz4_length(data: bytes, at: int, value: int) -> tuple[int, int]:
    if value == 15:
        while True:
            more, at = data[at], at + 1
            value += more
            if more != 255:
                break
    return value, at


def _lz4_copy(out: bytearray, distance: int, count: int, size: int) -> None:
    if not 0 < distance <= len(out) or len(out) + count > size:
        raise UndecodableError("lz4: bad match")
    if distance >= count:
        out += out[-distance:][:count]
    else:
        out += (bytes(out[-distance:]) * (count // distance + 1))[:count]
