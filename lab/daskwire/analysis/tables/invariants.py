"""What always holds of the tables: how rows are sorted, what identifies one, where a value may be unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskwire.base.arrays import NONE, equally_long, require
from daskwire.base.schema import TABLES, Table


@dataclass(frozen=True)
class Rows:
    """What always holds of the rows of a table.

    Attributes:
        sorted_by: columns by which the rows are sorted.
        unique: columns that together identify a row; empty if rows may repeat.
        optional: columns with None where the value is unknown.
        signed: columns with numbers that may be negative: differences between clocks, or NONE (-1).
        refers: column -> the table of which it contains row numbers.
    """

    sorted_by: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    optional: frozenset[str] = frozenset()
    signed: frozenset[str] = frozenset()
    refers: Mapping[str, str] = field(default_factory=dict)


ROWS: dict[str, Rows] = {
    "messages": Rows(("time_ns",), signed=frozenset({"answer"}), refers={"answer": "messages"}),
    "ops": Rows(("message",), optional=frozenset({"key"}), refers={"message": "messages"}),
    "tasks": Rows(
        optional=frozenset({
            "thread", "sent_ns", "start_s", "stop_s", "finished_ns", "wait_ms", "compute_ms", "transfer_ms",
            "disk_ms", "report_ms", "nbytes", "type",
        }),
        signed=frozenset({"wait_ms", "report_ms"}),
    ),
    "transfers": Rows(
        ("request_ns",),
        optional=frozenset({"receive_ms", "memory_bytes", "status", "mb_s", "rtt_min_ms"}),
        signed=frozenset({"serve_ms", "wire_ms", "receive_ms"}),
    ),
    "parts": Rows(
        ("transfer",),
        optional=frozenset({"memory_bytes", "serializer", "type", "dtype", "shape", "compression"}),
        refers={"transfer": "transfers"},
    ),
    "heartbeats": Rows(
        ("time_ns",),
        optional=frozenset({
            "interval_ms", "announced_ms", "reply_bytes", "answer_ms", "cpu_pct", "memory_bytes", "executing",
            "latency_ms",
        }),
        signed=frozenset({"answer_ms"}),
    ),
    "matrix": Rows(("cluster", "source", "destination"), ("cluster", "source", "destination")),
    "series": Rows(
        ("second", "cluster", "source", "destination"), ("second", "cluster", "source", "destination")
    ),
    "composition": Rows(("cluster", "source"), ("cluster", "source", "op")),
    "gaps": Rows(signed=frozenset({"gap_ms"})),
    "nodes": Rows(optional=frozenset({"registered_ns", "left_ns"})),
    "reach": Rows(
        ("cluster", "source", "destination", "address", "port"),
        ("cluster", "source", "destination", "address", "port"),
        optional=frozenset({"handshake_ms", "rtt_ms"}),
    ),
    "problems": Rows(optional=frozenset({"begin_ns", "end_ns"})),
    "packets": Rows(("cluster", "source"), ("cluster", "source")),
    "flows": Rows(optional=frozenset({"handshake_ms", "rtt_min_ms", "rtt_p5_ms"})),
}  # fmt: skip


def validate(tables: Mapping[str, Table]) -> None:
    """Check what always holds of the tables of a capture.

    Raises:
        InvariantError: something does not hold.
    """
    lengths = {name: len(next(iter(table.values()))) for name, table in tables.items()}
    for name, table in tables.items():
        rules = ROWS[name]
        require(list(table) == list(TABLES[name]), f"{name}: the columns are those of TABLES")
        require(equally_long(table.values()), f"{name}: all columns have the same length")
        for column, values in table.items():
            _validate_column(f"{name}.{column}", values, column in rules.optional, column in rules.signed)
        keys = list(zip(*(table[column] for column in rules.sorted_by), strict=True))
        require(keys == sorted(keys), f"{name} is sorted by {', '.join(rules.sorted_by)}")
        keys = list(zip(*(table[column] for column in rules.unique), strict=True))
        require(len(keys) == len(set(keys)), f"{name}: {', '.join(rules.unique)} are unique")
        for column, other in rules.refers.items():
            is_row = [value == NONE or 0 <= value < lengths[other] for value in table[column]]
            require(np.array(is_row, bool), f"{name}.{column} is a row of {other}")


def _validate_column(name: str, values: list[Any], optional: bool, signed: bool) -> None:
    """Check that values are known where they must be, and that numbers are finite and not negative."""
    is_known = np.array([value is not None for value in values], bool)
    require(is_known | optional, f"{name} is never None")
    is_number = np.array([isinstance(value, int | float) for value in values], bool)
    numbers = np.array([value for value in values if isinstance(value, int | float)], float)
    require(np.isfinite(numbers), f"{name} is finite")
    require((numbers >= 0) | signed, f"{name} is not negative")
    is_text = np.array([isinstance(value, str) for value in values], bool)
    require(is_text | is_number | ~is_known, f"{name} has texts or numbers")
    require(not (is_text.any() and is_number.any()), f"{name} has either texts or numbers")
