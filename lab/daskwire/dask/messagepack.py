"""MessagePack from strangers: decoded, never unpickled, with bounded memory.

Dask's options: raw=False, keys of any type, tuples instead of lists (task keys are tuples and may be map
keys). Two things are looked at before memory is spent. A forged array header can claim millions of items;
MessagePack's ``skip`` walks the bytes without building anything, so whatever claims more than is there is
refused. And an empty map is one byte that becomes 72: of a large message the values are counted first.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import msgpack

from daskwire.net.stream import Bytes

SMALL = 2048  # bytes below which a forged header cannot claim memory worth a check
MOST_VALUES = 1 << 21  # in a message; 80 bytes each at most: 170 MB beside what it says itself
LONGEST_NAME = 4096  # of a task key or type that is more than plain text
_unpack = partial(
    msgpack.unpackb, raw=False, strict_map_key=False, use_list=False, unicode_errors="backslashreplace"
)
BAD = (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError, OverflowError)
FIXED = [1] * 256  # by first byte of a value its size, 0 where a length stands behind it
FIXED[0xA0:0xC0] = range(1, 33)  # short strings
FIXED[0xC4:0xCA] = [0] * 6  # binary, extensions
FIXED[0xCA:0xD4] = (5, 9, 2, 3, 5, 9, 2, 3, 5, 9)  # numbers
FIXED[0xD4:0xD9] = (3, 4, 6, 10, 18)  # extensions of fixed size
FIXED[0xD9:0xDC] = [0] * 3  # strings
FIXED[0xDC:0xE0] = (3, 5, 3, 5)  # headers of arrays and maps
LENGTH = {  # first byte: width of the length, bytes between it and what it counts
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip
PLAIN = frozenset({str, int, float, bool, type(None)})


class UndecodableError(ValueError):
    """Not one whole MessagePack object."""


def unpack(data: Bytes) -> Any:
    """The object that ``data`` is; raises UndecodableError."""
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
    if len(data) > MOST_VALUES and not _has_at_most(data, MOST_VALUES):  # each takes a byte or more
        raise ValueError(f"more than {MOST_VALUES} values")


def _has_at_most(data: Bytes, most: int) -> bool:
    """Whether well-formed MessagePack holds so many values; what is in an array or map counts by itself."""
    at, end = 0, len(data)
    for _ in range(most):
        if at >= end:
            return True
        first = data[at]
        if fixed := FIXED[first]:
            at += fixed
        else:
            width, more = LENGTH[first]
            at += 1 + width + more + int.from_bytes(data[at + 1 : at + 1 + width], "big")
    return at >= end


def name(value: Any) -> Any:
    """A task key or the like, to be kept: as it is when it is text or a tuple of plain values, else as text
    of bounded length (what it holds may be large, or nested deeper than Python likes).
    """
    if type(value) in PLAIN or (type(value) is tuple and PLAIN.issuperset(map(type, value))):
        return value
    return text(value)


def number(value: Any) -> int | float | None:
    """A finite number, None for all else that may stand in its place."""
    return value if type(value) is int or (type(value) is float and math.isfinite(value)) else None


def text(value: Any) -> str:
    """Anything decoded as text."""
    if type(value) is str:
        return value
    try:
        said = str(value)
    except RecursionError:
        return "(nested too deep)"
    return said if len(said) <= LONGEST_NAME else said[: LONGEST_NAME - 3] + "..."
