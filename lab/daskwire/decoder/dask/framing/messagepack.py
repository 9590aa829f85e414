"""Decode untrusted MessagePack with bounded memory. Nothing is unpickled.

Dask's options are used: raw=False, keys of any type, tuples instead of lists (task keys are tuples and may be
map keys). Two checks come before memory is allocated. A forged array header can claim millions of items:
MessagePack's ``skip`` walks the bytes without building objects and rejects headers that claim more than the
message contains. And an empty map is one byte that becomes 72, so the values of a large message are counted
first.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import msgpack

from daskwire.decoder.net.stream import Bytes

SMALL = 2048  # bytes; in a smaller message a forged header cannot claim a relevant amount of memory
MAX_VALUES = 1 << 21  # at most 80 bytes each: 170 MB in addition to the message itself
MAX_NAME = 4096  # characters of a task key or type that is not plain text
_unpack = partial(
    msgpack.unpackb, raw=False, strict_map_key=False, use_list=False, unicode_errors="backslashreplace"
)
BAD = (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError, OverflowError)
FIXED = [1] * 256  # size of a value by its first byte; 0 if a length follows
FIXED[0xA0:0xC0] = range(1, 33)  # short strings
FIXED[0xC4:0xCA] = [0] * 6  # binary, extensions
FIXED[0xCA:0xD4] = (5, 9, 2, 3, 5, 9, 2, 3, 5, 9)  # numbers
FIXED[0xD4:0xD9] = (3, 4, 6, 10, 18)  # extensions of fixed size
FIXED[0xD9:0xDC] = [0] * 3  # strings
FIXED[0xDC:0xE0] = (3, 5, 3, 5)  # headers of arrays and maps
LENGTH = {  # first byte: width of the length, and the bytes between it and the data
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip
PLAIN = frozenset({str, int, float, bool, type(None)})


class UndecodableError(ValueError):
    """The data is not exactly one MessagePack object, or exceeds a limit."""


def unpack(data: Bytes) -> Any:
    """Decode one object.

    Raises:
        UndecodableError: ``data`` is not exactly one object, or it exceeds a limit.
    """
    try:
        if len(data) > SMALL:
            _check(data)
        return _unpack(data)
    except BAD as error:
        raise UndecodableError(str(error) or type(error).__name__) from None


def _check(data: Bytes) -> None:
    checker = msgpack.Unpacker(max_buffer_size=len(data), strict_map_key=False)
    checker.feed(data)
    checker.skip()
    if len(data) > MAX_VALUES and not _has_at_most(data, MAX_VALUES):  # a value is at least one byte
        raise ValueError(f"more than {MAX_VALUES} values")


def _has_at_most(data: Bytes, limit: int) -> bool:
    """Return whether valid MessagePack contains at most ``limit`` values, items of containers included."""
    at, end = 0, len(data)
    for _ in range(limit):
        if at >= end:
            return True
        first = data[at]
        if fixed := FIXED[first]:
            at += fixed
        else:
            width, extra = LENGTH[first]
            at += 1 + width + extra + int.from_bytes(data[at + 1 : at + 1 + width], "big")
    return at >= end


def name(value: Any) -> Any:
    """Convert a task key or similar for storage.

    Text and tuples of plain values are returned unchanged. Anything else becomes text of limited length: it
    may be large, or nested too deeply for Python.
    """
    if type(value) in PLAIN or (type(value) is tuple and PLAIN.issuperset(map(type, value))):
        return value
    return text(value)


def number(value: Any) -> int | float | None:
    """Return the value if it is a finite number, else None."""
    return value if type(value) is int or (type(value) is float and math.isfinite(value)) else None


def text(value: Any) -> str:
    """Convert any decoded value to text of limited length."""
    if type(value) is str:
        return value
    try:
        result = str(value)
    except RecursionError:
        return "(nested too deep)"
    return result if len(result) <= MAX_NAME else result[: MAX_NAME - 3] + "..."
