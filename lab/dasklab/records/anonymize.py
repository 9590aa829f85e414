"""A record as it would have been written with hashed keys or without code: its chunks and its description."""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dasklab.errors import UNFORESEEN, DamagedError
from dasklab.model.settings.plain_dask import is_plain
from dasklab.records import chunk_file
from dasklab.records.document import RECORD, read_document
from dasklab.records.recorder.layout import MISSING_US, Column, layout
from dasklab.records.recorder.privacy import Privacy
from dasklab.records.recorder.store import pack_columns

ARRAY_CODES = {"t": "q", "i": "q", "f": "d", "s": "i"}


def anonymize(record: Path, target: Path, hashed: bool, code: bool) -> None:
    """Write a record into an empty folder, as ``dasklab.record`` with these settings would have written it.

    Raises:
        DamagedError: the record is damaged.
        OSError: ``target`` cannot be written.
    """
    try:
        document = read_document(record)
        privacy = Privacy(hashed and document.keys != "hash", code and document.code is not False)
        frames = list(anonymous_frames((record / RECORD).read_bytes(), privacy))
    except UNFORESEEN as error:
        raise DamagedError(f"{record}: damaged: {type(error).__name__}: {error}") from error
    chunks_bytes = sum(
        chunk_file.append(target / RECORD, process, [chunk], repeat) for process, repeat, chunk in frames
    )
    replace(document.concealed(privacy), chunks_bytes=chunks_bytes).write(target)


def anonymous_frames(content: bytes, privacy: Privacy) -> Iterator[chunk_file.Frame]:
    """Yield the frames of a record's file without what must not be stored."""
    for process, repeat, chunk in chunk_file.inflated(content):
        table, columns, values = decode(process, chunk)
        settings = next((values[column.name] for column in columns if column.content == "setting"), None)
        if settings is not None:
            pairs = zip(settings, values["value"], strict=True)
            rows = [row for row, (name, value) in enumerate(pairs) if is_plain(name, json.loads(value))]
            values = {name: [own[row] for row in rows] for name, own in values.items()}
            if not rows:
                continue
        packed = pack_columns(columns, privacy.conceal(columns, values))
        yield chunk_file.Frame(process, repeat, zlib.compress(table.encode() + b"\n" + packed, 1))


def decode(process: str, chunk: bytes) -> tuple[str, list[Column], dict[str, list[Any]]]:
    """Return an inflated chunk's name, columns and values. A column that the layout lacks has no content."""
    table, rows, stored_columns = chunk_file.open_chunk(chunk)
    contents = {column.name: column.content for column in layout(process).get(table, [])}
    columns, values = [], {}
    for column, kind, more, content in stored_columns:
        stored = array(ARRAY_CODES[kind], content)
        columns.append(Column(column, kind, contents.get(column, "")))
        if kind == "t":
            own = [float("nan") if micros == MISSING_US else more + micros / 1e6 for micros in stored]
        else:
            own = [more[code] for code in stored] if kind == "s" else list(stored)
        if len(own) != rows:
            raise ValueError(f"column {column} has {len(own)} rows, not {rows}")
        values[column] = own
    return table, columns, values
