"""Write docs/reference/records.md from the tables' own descriptions.

python -m dasklab.records.reference docs/reference/records.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from dasklab.records.schema import TABLES


def reference() -> str:
    """Return the tables as a page in Markdown."""
    return "\n".join([*_head(), *_tables()]) + "\n"


def _head() -> Iterator[str]:
    yield "# The tables of records"
    yield ""
    yield "What `dasklab.records.load` returns, and what `records/*.parquet` in a trial's folder contains."
    yield "Times in `*_s` are seconds since 1970 by the clock that the column names; `dasklab.breakdown` puts"
    yield "them on one clock. What was not recorded is null. This page is generated:"
    yield "`python -m dasklab.records.reference docs/reference/records.md`."


def _tables() -> Iterator[str]:
    for name, columns in TABLES.items():
        yield f"\n## {name}\n\n| column | meaning |\n|---|---|"
        yield from (f"| `{column}` | {meaning} |" for column, meaning in columns.items())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
