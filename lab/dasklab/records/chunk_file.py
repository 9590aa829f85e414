"""Write the chunks of recorders to a file, and read them.

A record's file is a sequence of frames: a line of JSON and a chunk. The line is ``[process, bytes]``, with
the size of the chunk, or ``[process, bytes, repeat]`` for what a repeat of a trial recorded. Frames are
only ever appended, so a record that was interrupted is whole up to there.

No pandas here: it takes more memory than a recorder may.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

MAX_RATIO = 50  # of unpacked to packed bytes; recorders' chunks have 2 to 20
RATIO_APPLIES_BYTES = 16 * 1024**2  # to larger content only: the rest does no harm, however well it is packed
SHORT_TABLES = ("about", "config", "interfaces", "bandwidths", "metrics")
"""Tables that are written beyond a limit, too: a few rows for each process, and the counters."""


class Frame(NamedTuple):
    """A chunk of a process. ``repeat``: number of the repeat that it belongs to; None for none."""

    process: str
    repeat: int | None
    chunk: bytes


def append(path: Path, process: str, chunks: Iterable[bytes], repeat: int | None = None) -> int:
    """Append a process's chunks to a record's file; return the number of bytes."""
    of_repeat = [] if repeat is None else [repeat]
    frames = [json.dumps([process, len(chunk), *of_repeat]).encode() + b"\n" + chunk for chunk in chunks]
    with path.open("ab") as file:
        file.writelines(frames)
    return sum(map(len, frames))


def frames(content: bytes) -> Iterator[Frame]:
    """Return the frames; the last one is left out if it was cut off.

    Raises:
        ValueError: this is no sequence of frames.
    """
    for process, repeat, start, stop in _spans(io.BytesIO(content)):
        if stop <= len(content):
            yield Frame(process, repeat, content[start:stop])


def is_cut_off(path: Path) -> bool:
    """Whether a record's file ends within a frame.

    Raises:
        ValueError: this is no sequence of frames.
    """
    with path.open("rb") as file:
        last = max((stop for *_, stop in _spans(file)), default=0)
    return last != path.stat().st_size


def _spans(file: BinaryIO) -> Iterator[tuple[str, int | None, int, int]]:
    """Yield process, repeat, and where the chunk starts and stops; the last one may stop beyond the end."""
    position = 0
    while (head := file.readline()).endswith(b"\n"):
        process, length, *of_repeat = json.loads(head)
        repeat = of_repeat[0] if of_repeat else None
        is_frame = isinstance(process, str) and isinstance(length, int) and length >= 0
        if not is_frame or not isinstance(repeat, int | None) or len(of_repeat) > 1:
            raise ValueError(f"no frame begins at byte {position}")
        start = position + len(head)
        position = file.seek(start + length)
        yield process, repeat, start, position


def inflate(packed: bytes) -> bytes:
    """Return what was packed, as far as a recorder packs it into so few bytes: it may come from anybody.

    Raises:
        ValueError: it is damaged, or has more content.
    """
    limit = max(RATIO_APPLIES_BYTES, MAX_RATIO * len(packed))
    inflating = zlib.decompressobj()
    try:
        content = inflating.decompress(packed, limit + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(content) > limit:
        raise ValueError(f"{len(packed):,} bytes unpack to more than {limit // 1024**2:,} MiB")
    if not inflating.eof:
        raise ValueError("compressed data is cut off")
    return content


def inflated(content: bytes) -> Iterator[Frame]:
    """Return the frames with chunks that are inflated. All of them together are bounded like one.

    Raises:
        ValueError: this is no sequence of frames, or a chunk is damaged, or there is too much content.
    """
    left = max(4 * RATIO_APPLIES_BYTES, MAX_RATIO * len(content))
    for process, repeat, chunk in frames(content):
        unpacked = inflate(chunk)
        left -= len(unpacked)
        if left < 0:
            raise ValueError(f"{len(content):,} bytes have more content than a recorder packs into so few")
        yield Frame(process, repeat, unpacked)


def open_chunk(unpacked: bytes) -> tuple[str, int, list[tuple[str, str, Any, bytes]]]:
    """Return an inflated chunk's table, number of rows and columns.

    Of a column these are name, kind, what a reader must know, bytes.

    Raises:
        ValueError, TypeError: it is damaged.
    """
    table, description, body = unpacked.split(b"\n", 2)
    rows, heads = json.loads(description)
    columns, start = [], 0
    for name, kind, more, length in heads:
        columns.append((name, kind, more, body[start : start + length]))
        start += length
    return table.decode(), rows, columns


def describe(chunk: bytes) -> tuple[str, int]:
    """Return the table and the number of rows of a chunk."""
    table, columns = zlib.decompressobj().decompress(chunk, 100).split(b"\n", 1)
    return table.decode(), int(columns.partition(b",")[0].lstrip(b"["))
