"""What always holds in the tables of a record, beside what ``schema`` says of each column.

- A moment (``*_s``) is in seconds since 1970, NaN if nobody took it. The ``-1`` of packed chunks stands in no
  table.
- A duration (``*_s``), an amount of bytes and a number of things are never negative; NaN if unknown.
- ``stop_s`` is not before ``start_s`` of the same row.
- A table without an order in ``SORTED`` has none; one without an entry in ``UNIQUE`` may repeat all of a row.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from dasklab.records.schema import TABLES

DURATIONS = {
    "tasks": ("disk_s", "cpu_s", "cpu_waiting_s"),
    "graphs": ("materialise_s", "order_s", "state_s"),
    "fetches": ("deserialise_s", "serialise_s"),
    "busy": ("late_s",),
    "cpu": ("cpu_s", "waiting_s", "loop_waiting_s", "loop_cpu_s", "held_s", "machine_s"),
    "load": ("occupancy_s",),
}
SIGNED = {"delays": ("delay_s",)}
"""Differences of clocks, which may be negative."""

AMOUNTS = {
    "repeats": ("form", "lost"),
    "workers": ("threads",),
    "tasks": ("nbytes", "cpu_turns"),
    "graphs": ("nbytes", "tasks"),
    "calls": ("keys", "nbytes", "missing"),
    "needs": ("nbytes",),
    "cpu": ("memory_bytes",),
    "machines": ("cpus",),
    "shards": ("nbytes",),
    "memory": ("process_bytes", "managed_bytes", "spilled_bytes", "limit_bytes"),
    "load": ("processing", "queued"),
    "profiles": ("seconds",),
    "stacks": ("seconds",),
    "bandwidths": ("bytes_per_s",),
    "interfaces": ("mbit",),
}
UNIQUE = {
    "repeats": ("repeat",),
    "workers": ("repeat", "address"),
    "graphs": ("repeat", "graph"),
    "introduced": ("repeat", "key"),
    "machines": ("repeat", "node"),
}
"""Columns that no two rows have in common. A worker that a nanny started again has another address."""

SORTED = {
    "clock": "asked_s",
    "graphs": "received_s",
    "load": "time_s",
    "memory": "time_s",
    "events": "time_s",
}
"""Tables whose rows of a repeat are in the order of a column."""

BEFORE_RECORDS_S = 1e9
"""No record was made before 2001: a smaller time is in other units, or stands for a missing one."""


def moments(table: str) -> list[str]:
    """Return the columns of a table that hold seconds since 1970."""
    others = {*DURATIONS.get(table, ()), *SIGNED.get(table, ())}
    return [name for name in TABLES[table] if name.endswith("_s") and name not in others | {"bytes_per_s"}]


def validate(frames: Mapping[str, pd.DataFrame]) -> None:
    """Check what is written here.

    Raises:
        ValueError: something does not hold; it is named.
    """
    for table, columns in TABLES.items():
        rows = frames[table]
        if list(rows.columns) != list(columns):
            raise ValueError(f"table {table} has the columns {', '.join(rows.columns)}")
        for column in moments(table):
            _require(table, f"{column} is a time", not (rows[column].astype(float) < BEFORE_RECORDS_S).any())
        for column in (*DURATIONS.get(table, ()), *AMOUNTS.get(table, ())):
            _require(table, f"{column} is not negative", not (rows[column].astype(float) < 0).any())
        if {"start_s", "stop_s"} <= columns.keys():
            is_ordered = not (rows.stop_s.astype(float) < rows.start_s.astype(float)).any()
            _require(table, "stop_s is not before start_s", is_ordered)
        if table in UNIQUE:
            key = list(UNIQUE[table])
            _require(table, f"{' and '.join(key)} are unique", not rows.duplicated(key).any())
        if table in SORTED:
            is_sorted = all(
                bool((np.diff(own.astype(float)) >= 0).all())
                for _, own in rows[SORTED[table]].groupby(rows.repeat)
            )
            _require(table, f"it is sorted by {SORTED[table]}", is_sorted)


def _require(table: str, promise: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"table {table}: {promise}, but not here")
