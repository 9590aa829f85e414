"""Bounded logs of rows, packed into compressed chunks of columns."""

from __future__ import annotations

import json
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dasklab.records.recorder.layout import Column, columns_of
from dasklab.records.recorder.privacy import Privacy

MAX_PACKED_BYTES = 64_000_000
CHUNK_ROWS = 2000  # packed at once: a few milliseconds


class Log:
    """Rows of one table. ``lost``: how many were dropped because nobody took them."""

    def __init__(self, columns: str, most: int, privacy: Privacy | None = None) -> None:
        self.columns, self.privacy = columns_of(columns), privacy or Privacy()
        self.rows: deque[tuple[Any, ...]] = deque(maxlen=most)
        self.added = self.packed = 0

    def add(self, *row: Any) -> None:
        self.rows.append(row)
        self.added += 1

    def pack(self) -> bytes:
        """Take the oldest rows as a chunk, without what must not be stored."""
        rows = [self.rows.popleft() for _ in range(min(CHUNK_ROWS, len(self.rows)))]
        self.packed += len(rows)
        names = (column.name for column in self.columns)
        values = dict(zip(names, zip(*rows, strict=True), strict=True))
        return pack_columns(self.columns, self.privacy.conceal(self.columns, values))

    @property
    def lost(self) -> int:
        return self.added - self.packed - len(self.rows)


def pack_columns(columns: Sequence[Column], values: Mapping[str, Sequence[Any]]) -> bytes:
    """Return a line of JSON that describes the columns, then their bytes."""
    packed = [pack_column(column.kind, values[column.name]) for column in columns]
    heads = [[column.name, *head] for column, (head, _) in zip(columns, packed, strict=True)]
    rows = len(values[columns[0].name])
    return json.dumps([rows, heads]).encode() + b"\n" + b"".join(body for _, body in packed)


def pack_column(kind: str, values: Iterable[Any]) -> tuple[list[Any], bytes]:
    """Return what a reader has to know, and the bytes: times are microseconds since the first one."""
    if kind == "t":
        values = list(values)
        base = min((v for v in values if v == v), default=0.0)
        micros = array("q", [-1 if v != v else int((v - base) * 1e6 + 0.5) for v in values])
        return [kind, base, len(micros) * 8], micros.tobytes()
    if kind == "s":
        codes: dict[str, int] = {}
        index = array("i", [codes.setdefault(v, len(codes)) for v in values])
        return [kind, list(codes), len(index) * 4], index.tobytes()
    numbers = array("q" if kind == "i" else "d", values)
    return [kind, None, len(numbers) * 8], numbers.tobytes()


class Store:
    """The logs of a process, and the packed chunks that nobody has fetched yet."""

    def __init__(
        self,
        tables: Mapping[str, str],
        most_rows: int,
        most_bytes: int = MAX_PACKED_BYTES,
        privacy: Privacy | None = None,
    ) -> None:
        privacy = privacy or Privacy()
        self.logs = {name: Log(columns, most_rows, privacy) for name, columns in tables.items()}
        self.chunks: deque[bytes] = deque()
        self.most_bytes = most_bytes
        self.nbytes = self.dropped = 0
        self.failures: Counter[str] = Counter()

    def pack(self, least: int = 1) -> bool:
        """Pack one chunk of a log that has enough rows; return whether there was one."""
        for name, log in self.logs.items():
            if len(log.rows) >= least:
                self.chunks.append(zlib.compress(name.encode() + b"\n" + log.pack(), 1))
                self.nbytes += len(self.chunks[-1])
                while self.nbytes > self.most_bytes:
                    self.nbytes -= len(self.chunks.popleft())
                    self.dropped += 1
                return True
        return False

    def take(self, most: float) -> list[bytes]:
        """Hand over chunks, the oldest first, of about as many bytes."""
        chunks: list[bytes] = []
        while self.chunks and sum(map(len, chunks)) < most:
            chunks.append(self.chunks.popleft())
            self.nbytes -= len(chunks[-1])
        return chunks

    @property
    def lost(self) -> int:
        return self.dropped * CHUNK_ROWS + sum(log.lost for log in self.logs.values())
