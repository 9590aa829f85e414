"""MessagePack from strangers: decoded, never unpickled, with bounded memory.

Dask's options: raw=False, keys of any type, tuples instead of lists (task keys are tuples and may be map
keys). A forged array header can claim millions of items; MessagePack's ``skip`` walks the bytes without
building anything, so whatever claims more than is there is refused before memory is spent.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgpack

from lab.wire.net.stream import Bytes

SMALL = 2048  # below this a forged header cannot claim memory worth a check
_unpack = partial(
    msgpack.unpackb, raw=False, strict_map_key=False, use_list=False, unicode_errors="backslashreplace"
)
BAD = (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError, OverflowError)


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
