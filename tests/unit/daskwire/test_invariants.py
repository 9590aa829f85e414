"""What always holds of decoded captures holds of the stored ones; a violation is found.

The fixture ``read`` checks the same for each capture that a test builds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from daskwire.analysis.tables.completeness import ROWS
from daskwire.analysis.tables.completeness import validate as validate_tables
from daskwire.base.arrays import NONE, InvariantError
from daskwire.base.schema import TABLES
from daskwire.decoder.dask.messages import Messages
from daskwire.decoder.net.segments import Segments

from tests.unit.daskwire.build import GOLDEN
from tests.unit.daskwire.conftest import golden_capture, validate

NAME = "g3-2026.8.0"


@pytest.mark.parametrize("name", GOLDEN)
def test_stored_captures_are_valid(name: str) -> None:
    validate(golden_capture(name))


def changed(arrays: Any, name: str, row: int, value: int) -> Any:
    column = getattr(arrays, name).copy()
    column[row] = value
    return replace(arrays, **{name: column})


@pytest.mark.parametrize(
    ("name", "row", "value"),
    [
        ("time_ns", 5, 0), ("flow", 5, -1), ("flow", 5, 10_000), ("captured", 5, 1 << 31), ("offset", 5, -1),
        ("ip_bytes", 5, 0), ("flags", 5, 1 << 14), ("flags", 5, 16),
    ],
)  # fmt: skip
def test_invalid_segments_are_found(name: str, row: int, value: int) -> None:
    capture = golden_capture(NAME)
    segments: Segments = changed(capture.segments, name, row, value)
    with pytest.raises(InvariantError, match="does not hold for row 5"):
        segments.validate(2 * len(capture.connections))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_ns", 0), ("flow", -1), ("size", 1 << 40), ("seen", -1), ("seen", 1 << 40), ("frames", 0),
        ("body_at", 0), ("body_size", 1 << 40), ("kind", 7), ("answer", 1 << 30), ("answer", 30),
        ("op_message", 1 << 30),
    ],
)  # fmt: skip
def test_invalid_messages_are_found(name: str, value: int) -> None:
    messages: Messages = changed(golden_capture(NAME).messages, name, 30, value)
    with pytest.raises(InvariantError, match=r"^Messages\."):
        messages.validate()


def test_a_reply_refers_to_its_request() -> None:
    messages = golden_capture(NAME).messages
    request = int(np.flatnonzero(messages.answer != NONE)[0])
    with pytest.raises(InvariantError, match="request and reply refer to each other"):
        changed(messages, "answer", request, request).validate()


@pytest.mark.parametrize(
    ("table", "column", "row", "value"),
    [
        ("messages", "time_ns", 3, 0), ("messages", "bytes", 3, -1), ("messages", "op", 3, None),
        ("tasks", "compute_ms", 1, float("nan")), ("tasks", "worker", 1, 7), ("parts", "transfer", -1, 99),
        ("matrix", "source", 1, "zzz"), ("flows", "packets", 1, None),
    ],
)  # fmt: skip
def test_invalid_tables_are_found(table: str, column: str, row: int, value: Any) -> None:
    capture = golden_capture(NAME)
    tables = {name: {c: [*v] for c, v in capture.table(name).items()} for name in TABLES}
    tables[table][column][row] = value
    with pytest.raises(InvariantError, match=rf"^{table}"):
        validate_tables(tables)


def test_each_table_has_rules_about_its_columns() -> None:
    assert list(ROWS) and set(ROWS) == set(TABLES)
    for name, rows in ROWS.items():
        named = {*rows.sorted_by, *rows.unique, *rows.optional, *rows.signed, *rows.refers}
        assert named <= set(TABLES[name])
