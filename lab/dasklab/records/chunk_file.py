"""Write the chunks of recorders to a file, and read them.

A record's file is a sequence of frames: a line of JSON (``[process, bytes]``) and a chunk of so many bytes.
Frames are only ever appended, so a record that was interrupted is whole up to there.

No pandas here: it takes more memory than a recorder may.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

SHORT_TABLES = ("about", "config", "interfaces", "bandwidths", "metrics")
"""Tables that are written beyond a limit, too: a few rows for each process, and the counters."""


def append(path: Path, process: str, chunks: Iterable[bytes]) -> int:
    """Append a process's chunks to a record's file; return the number of bytes."""
    frames = [json.dumps([process, len(chunk)]).encode() + b"\n" + chunk for chunk in chunks]
    with path.open("ab") as file:
        file.writelines(frames)
    return sum(map(len, frames))


def frames(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Return the frames; the last one may be cut off."""
    position = 0
    while (end := content.find(b"\n", position)) >= 0:
        process, length = json.loads(content[position:end])
        position = end + 1 + length
        if position > len(content):
            return
        yield process, content[end + 1 : position]


def is_cut(content: bytes) -> bool:
    """Return whether the last frame is not whole."""
    whole_bytes = sum(len(json.dumps([name, len(chunk)])) + 1 + len(chunk) for name, chunk in frames(content))
    return whole_bytes < len(content)


def describe(chunk: bytes) -> tuple[str, int]:
    """Return the table and the number of rows of a chunk."""
    table, columns = zlib.decompressobj().decompress(chunk, 100).split(b"\n", 1)
    return table.decode(), int(columns.partition(b",")[0].lstrip(b"["))
