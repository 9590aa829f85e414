"""Describe the objects in a message (size, dtype, shape, compression) from their sub-headers alone.

G2 and G3 replace an object by ``{"__Serialized__": i}`` (or ``__Pickled__``): frame i is a sub-header in
MessagePack, the frames after it are the data. G1 has all sub-headers in frame 2. Nothing is unpickled; only
the size of a pickle is measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from daskwire.decoder.dask.content import UndecodableError, name, text, unpack
from daskwire.decoder.dask.conversations import Conversation
from daskwire.decoder.dask.framing import Generation
from daskwire.decoder.dask.messages import Messages, content, frames

MARKS = ("__Serialized__", "__Pickled__")
MAX_DEPTH = 4
MAX_AXES = 64  # NumPy's own limit


@dataclass(frozen=True)
class Part:
    """An object in a message: ``wire_bytes`` as sent, ``bytes`` in memory (None if unknown)."""

    key: str
    wire_bytes: int
    bytes: int | None
    serializer: str
    type: str
    dtype: str
    shape: str
    compression: str


def parts(messages: Messages, index: int, conversations: Mapping[int, Conversation]) -> list[Part]:
    """Describe the objects in a message whose sub-headers were captured."""
    try:
        stream, generation, positions, sizes = frames(messages, index, conversations)
        if generation is Generation.G1:
            table = stream.read(positions[2], sizes[2]) if len(positions) > 2 else None
            return list(_g1(unpack(table), sizes)) if table is not None else []
        result = []
        for key, frame, mark in _marks(content(messages, index, conversations), "", 0):
            head = stream.read(positions[frame], sizes[frame]) if 0 < frame < len(positions) else None
            if head is not None:
                result.append(_part(key, _as_dict(unpack(head)), mark, sizes, frame + 1))
    except (KeyError, UndecodableError):
        return []
    return result


def _marks(item: Any, key: str, depth: int) -> Iterator[tuple[str, int, str]]:
    """Yield key, frame number and kind of mark for each object in a decoded message."""
    if depth > MAX_DEPTH:
        return
    if isinstance(item, dict):
        for mark in MARKS:
            frame = item.get(mark)
            if isinstance(frame, int) and len(item) == 1:
                yield key, frame, mark
                return
        for field_name, value in item.items():
            yield from _marks(value, text(field_name), depth + 1)
    elif isinstance(item, tuple):
        for value in item:
            yield from _marks(value, key, depth + 1)


def _g1(table: Any, sizes: list[int]) -> Iterator[Part]:
    """Read frame 2 of G1: ``headers`` by path, and ``keys``, the order of their frames."""
    headers = _as_dict(_as_dict(table).get("headers"))
    paths, at = _as_dict(table).get("keys"), 3
    for path in paths if isinstance(paths, tuple) else ():
        if not isinstance(path, tuple) or name(path) is not path:
            return  # the frames of the next objects are unknown
        header = _as_dict(headers.get(path))
        yield _part(text(path[-1]) if path else "", header, "__Serialized__", sizes, at)
        count = header.get("count", 1)
        at += count if isinstance(count, int) and count >= 0 else 1


def _as_dict(item: Any) -> dict[Any, Any]:
    return item if isinstance(item, dict) else {}


def _part(key: str, header: dict[Any, Any], mark: str, sizes: list[int], first: int) -> Part:
    count = header.get("num-sub-frames", header.get("count", 0))
    wire = sum(sizes[first : first + count]) if isinstance(count, int) and count >= 0 else 0
    pickled = header.get("pickled-obj")
    if isinstance(pickled, bytes):
        wire += len(pickled)
    inner = _as_dict(header.get("sub-header")) or header
    dtype, shape = _dtype(inner.get("dtype")), inner.get("shape")
    compression = header.get("compression")
    kinds = {text(c) for c in compression if c} if isinstance(compression, tuple) else set()
    size = _array_bytes(dtype, shape)
    return Part(
        key=key,
        wire_bytes=wire,
        bytes=size if size is not None else (None if kinds else wire),
        serializer="pickle" if mark == "__Pickled__" else text(header.get("serializer", "")),
        type=text(header.get("type", "")) if not isinstance(header.get("type"), bytes) else "",
        dtype=dtype,
        shape=" x ".join(map(text, shape)) if _is_shape(shape) else "",
        compression="+".join(sorted(kinds)),
    )


def _dtype(value: Any) -> str:
    """Return NumPy's string of a plain dtype. Dask sends it as ``(0, string)`` and pickles other dtypes."""
    dtype = value[1] if isinstance(value, tuple) and len(value) == 2 else value
    return dtype if isinstance(dtype, str) else ""


def _is_shape(shape: Any) -> TypeGuard[tuple[int, ...]]:
    return isinstance(shape, tuple) and len(shape) <= MAX_AXES and all(isinstance(n, int) for n in shape)


def _array_bytes(dtype: str, shape: Any) -> int | None:
    size = re.fullmatch(r"[<>|=]?[biufcmMSUV](\d+)(\[.*\])?", dtype)
    if size is None or not _is_shape(shape):
        return None
    return math.prod(shape) * int(size[1]) * (4 if "U" in dtype else 1)
