"""The tables of records, from their own descriptions."""

from __future__ import annotations

from collections.abc import Iterator

from dasklab.records.schema import TABLES


def tables() -> str:
    """Describe the columns of all tables."""
    return "\n".join(_tables())


def _tables() -> Iterator[str]:
    for name, columns in TABLES.items():
        yield f"\n## {name}\n\n| column | meaning |\n|---|---|"
        yield from (f"| `{column}` | {meaning} |" for column, meaning in columns.items())
