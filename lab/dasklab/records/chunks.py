"""Read the chunks of recorders back into columns, from the file that ``chunk_file`` wrote."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dasklab.errors import LabError
from dasklab.records import chunk_file
from dasklab.records.recorder.layout import MISSING_US, layout

Tables = dict[str, pd.DataFrame]
Processes = dict[str, Tables]
Columns = dict[str, npt.NDArray[Any]]
KINDS = {"t": "<i8", "i": "<i8", "f": "<f8", "s": "<i4"}
TYPES = {"t": float, "f": float, "i": np.int64, "s": object}


def read(path: Path) -> dict[int | None, Processes]:
    """Return the tables of each process, by its name, for each repeat.

    Times are seconds, NaN where nobody took them. What belongs to no repeat is under None: in a
    cluster's record all, in a trial's what came before the first repeat. What came after the last one is
    left out.

    Raises:
        LabError: the file is damaged.
    """
    parts: dict[int | None, defaultdict[str, defaultdict[str, list[Columns]]]] = {}
    texts: dict[str, str] = {}
    try:
        for process, repeat, chunk in chunk_file.frames(path.read_bytes()):
            if repeat is None and parts.keys() - {None}:
                continue
            table, columns = unpack(chunk, texts)
            parts.setdefault(repeat, defaultdict(lambda: defaultdict(list)))[process][table].append(columns)
        return {
            repeat: {
                process: {name: _joined(pieces) for name, pieces in tables.items()}
                for process, tables in processes.items()
            }
            for repeat, processes in parts.items()
        }
    except (ValueError, LookupError, TypeError, RecursionError, zlib.error) as error:
        raise LabError(f"{path}: damaged: {error}") from error


def _joined(pieces: Sequence[Columns]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            # a column of objects: pandas' own type of texts takes longer to make and to join
            name: pd.Series(np.concatenate([piece[name] for piece in pieces]), dtype=column.dtype)
            for name, column in pieces[0].items()
        }
    )


def unpack(chunk: bytes, texts: dict[str, str]) -> tuple[str, Columns]:
    """Return the table's name and the columns of a chunk.

    Args:
        texts: those of earlier chunks, to which those of this one are added: equal texts, as the key of a
            task in many rows, become one object.
    """
    table, rows, columns = chunk_file.open_chunk(chunk)
    frame: Columns = {}
    for column, kind, more, content in columns:
        values = np.frombuffer(content, KINDS[kind], rows)
        if kind == "t":
            frame[column] = np.where(values == MISSING_US, np.nan, more + values / 1e6)
        elif kind == "s":
            frame[column] = np.array([texts.setdefault(text, text) for text in more], object)[values]
        else:
            frame[column] = values
    return table, frame


def complete(tables: Tables, process: str) -> Tables:
    """Add the tables that a process had no rows for."""
    return _empty(process if process in ("scheduler", "client") else "worker") | tables


@cache
def _empty(process: str) -> Tables:
    return {
        name: pd.DataFrame({column.name: pd.Series([], dtype=TYPES[column.kind]) for column in columns})
        for name, columns in layout(process).items()
    }
