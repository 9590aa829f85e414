"""Export tables: rows for JSON, Parquet files, pandas frames."""

from __future__ import annotations

import importlib
import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskwire.base.errors import WireError
from daskwire.base.schema import TABLES, Table

if TYPE_CHECKING:
    import pandas as pd

    from daskwire.decoder.capture import Capture


def rows(table: Table, limit: int | None = None) -> list[dict[str, Any]]:
    """Convert a table to a list of dicts for JSON (NaN becomes None), at most ``limit`` of them."""
    names = list(table)
    number = len(table[names[0]])
    selected = range(number if limit is None else min(limit, number))
    return [{name: _plain(table[name][i]) for name in names} for i in selected]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_pandas(table: Table) -> pd.DataFrame:
    """Convert a table to a pandas frame.

    Raises:
        WireError: pandas is not installed.
    """
    frame: pd.DataFrame = _import("pandas").DataFrame(table)
    return frame


def write_parquet(capture: Capture, folder: Path, names: list[str] | None = None) -> list[Path]:
    """Write tables (by default all) as Parquet, with the meaning of each column in the metadata.

    Raises:
        WireError: pyarrow is not installed, or the folder cannot be written.
    """
    files = [f"{name}.parquet" for name in names or TABLES]
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder) as draft:
            _write_tables(capture, Path(draft), names or list(TABLES))
            for file in files:
                Path(draft, file).replace(folder / file)
    except OSError as error:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise WireError(f"{folder}: {reason}") from error
    return [folder / file for file in files]


def _write_tables(capture: Capture, folder: Path, names: list[str]) -> None:
    arrow, parquet = _import("pyarrow"), _import("pyarrow.parquet")
    for name in names:
        columns = {column: arrow.array(_same_type(v)) for column, v in capture.table(name).items()}
        fields = [
            arrow.field(column, array.type, metadata={"description": TABLES[name][column]})
            for column, array in columns.items()
        ]
        table = arrow.table(list(columns.values()), arrow.schema(fields))
        parquet.write_table(table, folder / f"{name}.parquet", write_page_checksum=True)


def refuse_unwritable(folder: Path) -> None:
    """Raise WireError if a folder, which need not exist yet, cannot be written."""
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise WireError(f"{folder}: {error.strerror}") from error


def _same_type(values: list[Any]) -> list[Any]:
    """Make a column uniform: numbers if all values are numbers, else text (captures are untrusted)."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} and all(v is None or abs(v) < 1 << 63 for v in values):
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return values if kinds <= {str} else [None if value is None else str(value) for value in values]


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise WireError(f"this export needs the package {module.split('.')[0]}") from error
