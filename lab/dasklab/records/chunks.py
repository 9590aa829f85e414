"""Read the chunks of recorders back into columns, from the file that ``chunk_file`` wrote."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dasklab.errors import UNFORESEEN, DamagedError
from dasklab.records import chunk_file
from dasklab.records.document import MAX_TIME_S
from dasklab.records.recorder.layout import MISSING_US, Column, layout

Tables = dict[str, pd.DataFrame]
Processes = dict[str, Tables]
Columns = dict[str, npt.NDArray[Any]]
KINDS = {"t": "<i8", "i": "<i8", "f": "<f8", "s": "<i4"}
MAX_CLOCK_STEP_S = 86_400.0  # a clock that is set back in the middle makes a duration negative
MAX_NUMBER = 1e18  # beyond all seconds, bytes, threads' identifiers and numbers of things
MAX_THREADS = 65_536  # of a worker; each of them has a row of its own in an explanation
TYPES = {"t": float, "f": float, "i": np.int64, "s": object}


def read(path: Path) -> dict[int | None, Processes]:
    """Return the tables of each process, by its name, for each repeat.

    Times are seconds, NaN where nobody took them. What belongs to no repeat is under None: in a
    cluster's record all, in a trial's what came before the first repeat. What came after the last one is
    left out.

    Raises:
        DamagedError: a chunk cannot be unpacked, or has a column or a value that no recorder writes.
    """
    parts: dict[int | None, defaultdict[str, defaultdict[str, list[Columns]]]] = {}
    texts: dict[str, str] = {}
    try:
        for process, repeat, chunk in chunk_file.inflated(path.read_bytes()):
            if repeat is None and parts.keys() - {None}:
                continue
            table, columns = unpack(chunk, texts, _columns(_role(process)))
            parts.setdefault(repeat, defaultdict(lambda: defaultdict(list)))[process][table].append(columns)
        return {
            repeat: {
                process: {name: _joined(pieces) for name, pieces in tables.items()}
                for process, tables in processes.items()
            }
            for repeat, processes in parts.items()
        }
    except UNFORESEEN as error:
        raise DamagedError(f"{path}: damaged: {error}") from error


def _joined(pieces: Sequence[Columns]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            # a column of objects: pandas' own type of texts takes longer to make and to join
            name: pd.Series(np.concatenate([piece[name] for piece in pieces]), dtype=column.dtype)
            for name, column in pieces[0].items()
        }
    )


def unpack(
    chunk: bytes, texts: dict[str, str], layouts: Mapping[str, Mapping[str, Column]] | None = None
) -> tuple[str, Columns]:
    """Return the table's name and the columns of an inflated chunk.

    Args:
        texts: those of earlier chunks, to which those of this one are added: equal texts, as the key of a
            task in many rows, become one object.
        layouts: the columns of each table by their names. Tables that have them must have them all, and
            senseless values in them are refused.

    Raises:
        ValueError: a column is missing, or has such a value.
    """
    table, rows, columns = chunk_file.open_chunk(chunk)
    expected = (layouts or {}).get(table, {})
    frame: Columns = {}
    for name, kind, more, content in columns:
        try:
            if name in expected:
                _check_texts_and_kind(expected[name], kind, more)
            frame[name] = _values(kind, more, np.frombuffer(content, KINDS[kind], rows), texts)
            if name in expected:
                _check_numbers(expected[name], frame[name])
        except UNFORESEEN as error:
            raise ValueError(f"table {table}, column {name}: {error}") from error
    for name in expected:
        if name not in frame:
            raise ValueError(f"table {table}, column {name}: missing")
    return table, frame


def _values(kind: str, more: Any, stored: npt.NDArray[Any], texts: dict[str, str]) -> npt.NDArray[Any]:
    if kind == "t":
        return np.asarray(np.where(stored == MISSING_US, np.nan, more + stored / 1e6))
    if kind == "s":
        if stored.min(initial=0) < 0:
            raise ValueError("a text that it does not hold")
        return np.asarray(np.array([texts.setdefault(text, text) for text in more], object)[stored])
    return stored


def _check_texts_and_kind(column: Column, kind: str, more: Any) -> None:
    """Refuse another kind of column, and texts that are none, or that are no JSON where it is due."""
    if kind != column.kind:
        raise ValueError(f"of kind {kind!r}, not {column.kind!r}")
    if kind != "s":
        return
    if not isinstance(more, list) or not all(isinstance(text, str) for text in more):
        raise ValueError("something else than texts")
    for text in more:
        if column.content == "json" or (column.content == "detail" and text.startswith("{")):
            json.loads(text)
        elif column.content == "stack":
            stack = json.loads(text)
            if not isinstance(stack, list) or not all(isinstance(frame, str) for frame in stack):
                raise ValueError("a stack of something else than functions")


def _check_numbers(column: Column, values: npt.NDArray[Any]) -> None:
    """Refuse times beyond all clocks, and numbers that are infinite or beyond all that is counted."""
    if column.kind == "s":
        return
    lowest, highest, noun = -MAX_CLOCK_STEP_S, MAX_NUMBER, "number that anything has"
    if column.kind == "t":
        lowest, highest, noun = 0.0, MAX_TIME_S, "time"
    elif column.content == "threads":
        lowest, highest, noun = 0.0, MAX_THREADS, "number of threads"
    for end in (np.nanmin(values, initial=0), np.nanmax(values, initial=0)):
        if not lowest <= end <= highest:
            raise ValueError(f"{end:g} is no {noun}")


def complete(tables: Tables, process: str) -> Tables:
    """Add the tables that a process had no rows for."""
    return _empty(_role(process)) | tables


def _role(process: str) -> str:
    return process if process in ("scheduler", "client") else "worker"


@cache
def _columns(role: str) -> dict[str, dict[str, Column]]:
    return {name: {column.name: column for column in columns} for name, columns in layout(role).items()}


@cache
def _empty(process: str) -> Tables:
    return {
        name: pd.DataFrame({column.name: pd.Series([], dtype=TYPES[column.kind]) for column in columns})
        for name, columns in layout(process).items()
    }
