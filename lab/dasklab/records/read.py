"""A trial's records as tables: unpacked once into Parquet files in the cache, read from there by all who ask.

They are never beside the trial, which may come from somebody else: what such files unpack to has no bound.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.lib import ArrowException

from dasklab import atomic, paths
from dasklab.errors import UNFORESEEN, DamagedError, LabError, plain
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import CAPTURE_RECORD_FOLDER, RECORD_FOLDER
from dasklab.notices import warn
from dasklab.records import assemble, chunks
from dasklab.records.document import RECORD, Record, read_document
from dasklab.records.recorder.layout import FORM
from dasklab.records.schema import TABLES
from dasklab.results import cached
from dasklab.results.run import Trial

Frames = dict[str, pd.DataFrame]
PACKAGE = Path(paths.__file__).parent
TRACEBACK = "traceback.log"  # in the cache: the last one of what nobody foresaw


def load(folder: str | Path, captured: bool = False) -> Frames:
    """Return the tables of the record or the trial in a folder, for scripts; see ``tables_of``."""
    return tables_of(Trial(Path(folder)), captured)


def tables_of(trial: Trial, captured: bool = False) -> Frames:
    """Return what Dask recorded of a trial's repeats: a frame for each of ``dasklab.records.schema.TABLES``.

    ``captured``: of the repeats that were captured instead of those that were timed.

    Raises:
        LabError: nothing was recorded there.
    """
    if trial.is_record:
        return load_record(trial)[1]
    source = source_of(trial, captured)
    folder = _folder(trial, source)
    try:
        if _is_complete(folder):
            return _read(folder)
    except LabError as error:
        warn(f"{error.message}; the tables are made again")
    if not source.exists() and trial.read(RequestedTrial) is None:
        raise LabError(
            f"{trial}: this is no record, trial or run",
            f"name a folder that `dasklab record` or `dasklab run` wrote; a record has {Record.FILE}",
        )
    record = Trial(source.parent)
    if not record.is_record:
        missing = f"{record.name}/{Record.FILE}"
        raise LabError(f"{trial}: nothing was recorded inside Dask, it has no {missing}")
    frames = load_record(record)[1]
    with atomic.filled(folder) as draft:
        _write(frames, draft)
    return _read(folder)


def source_of(trial: Trial, captured: bool = False) -> Path:
    """Return the file with what was recorded of a trial or cluster; it may not exist."""
    if trial.is_record:
        return trial.folder / RECORD
    return trial.folder / (CAPTURE_RECORD_FOLDER if captured else RECORD_FOLDER) / RECORD


def _folder(trial: Trial, source: Path) -> Path:
    """Return the folder of the cache for the tables of these records."""
    files = (source, source.with_name(Record.FILE))
    content = b"".join(file.read_bytes() for file in files if file.exists())
    return cached.folder_for(trial.folder, content) / source.parent.name


@contextmanager
def reading(source: object) -> Iterator[None]:
    """Say that a source is damaged or unexpected where its values make Python fail; keep the traceback.

    Raises:
        DamagedError: they do; the message says where in dasklab.
    """
    try:
        yield
    except UNFORESEEN as error:
        calls = [(Path(call.filename), call.lineno) for call in traceback.extract_tb(error.__traceback__)]
        own = [f"{file.relative_to(PACKAGE)}:{line}" for file, line in calls if PACKAGE in file.parents]
        reason = f"{type(error).__name__}: {error}".split("\n")[0]
        raise unexpected(source, f"{own[-1]}: {reason}", traceback.format_exc()) from error


def unexpected(source: object, where: str, text: str) -> DamagedError:
    """Keep the text of a traceback, and return the error for the user."""
    log = paths.cache() / TRACEBACK
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(log, plain(text))
    except OSError:
        return DamagedError(f"{source}: damaged or unexpected, at {where}")
    hint = f"if it is whole, please report it with {paths.display_path(log)}"
    return DamagedError(f"{source}: damaged or unexpected, at {where}", hint)


def load_record(record: Trial) -> tuple[Record, Frames]:
    """Return what a record says of itself, and its tables.

    Raises:
        LabError: one of the record's files is damaged or missing.
    """
    folder = record.folder
    document = read_document(folder)
    if document.form != FORM:
        raise LabError(f"{folder}: it was recorded by another version of dasklab (form {document.form})")
    parts = chunks.read(folder / RECORD)
    try:
        return document, assemble.tables(parts, document)
    except UNFORESEEN as error:
        why = f"{type(error).__name__}: {error}"
        raise DamagedError(
            f"{folder / RECORD}: damaged: its tables are not of the expected form ({why})"
        ) from error


def _read(folder: Path) -> Frames:
    options = {"page_checksum_verification": True}
    tables = {name: _whole(pq.read_table, folder / f"{name}.parquet", **options) for name in TABLES}
    return {name: table.to_pandas() for name, table in tables.items()}


def _whole(read: Callable[..., Any], file: Path, **options: Any) -> Any:
    """What ``read`` makes of a file.

    Raises:
        LabError: the file is damaged.
    """
    try:
        return read(file, **options)
    except (OSError, ValueError, ArrowException) as error:
        raise DamagedError(f"{file}: damaged: {str(error).splitlines()[0]}") from error


def recorded(trial: Trial, captured: bool = False) -> bool:
    """Is anything known of what Dask recorded of this trial?"""
    return source_of(trial, captured).exists()


def _is_complete(folder: Path) -> bool:
    """Return whether all tables are there, with the columns that they have today."""
    files = {name: folder / f"{name}.parquet" for name in TABLES}
    return all(
        file.exists() and _whole(pq.read_schema, file).names == list(TABLES[name])
        for name, file in files.items()
    )


def _write(frames: Mapping[str, pd.DataFrame], folder: Path) -> None:
    for name, frame in frames.items():
        table = pa.Table.from_pandas(frame, preserve_index=False)
        fields = [field.with_metadata({"description": TABLES[name][field.name]}) for field in table.schema]
        described = table.cast(pa.schema(fields))
        pq.write_table(described, folder / f"{name}.parquet", write_page_checksum=True)
