"""Decompress LZ4 blocks. G1 uses them for large messages.

pyarrow is not used because it fills the result with uninitialised memory if a block contains less than it
promises.
"""

from __future__ import annotations

import struct

from daskwire.decoder.dask.framing.messagepack import UndecodableError

MAX_MESSAGE_BYTES = 1 << 28  # decompressed


def lz4_block(data: bytes) -> bytes:
    """Decompress the output of ``lz4.block.compress``: 4 bytes of size, then literals and matches.

    Raises:
        UndecodableError: the data is damaged or too large.
    """
    if len(data) < 4:
        raise UndecodableError("lz4: the size is missing")
    (size,) = struct.unpack_from("<I", data)
    if size > min(255 * len(data), MAX_MESSAGE_BYTES):
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
        raise UndecodableError("lz4: truncated") from None
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
