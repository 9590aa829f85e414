"""Write the reference of daskwire's tables, ``docs/reference/wire-tables.md``, from their descriptions.

python -m tests.wire_reference
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from daskwire import TABLES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "wire-tables.md"
INTRODUCTION = """# Tables of daskwire

Times `*_ns` are nanoseconds since 1970 on the clock of the capturing machine, `*_s` seconds since 1970 on the
worker's clock. Unknown values are empty. `daskwire.TABLES` and the metadata of Parquet files contain the same
descriptions. This page is generated: `python -m tests.wire_reference`.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([INTRODUCTION, *_tables()])


def _tables() -> Iterator[str]:
    for name, columns in TABLES.items():
        yield f"## {name}\n"
        yield "\n".join(
            ["| column | meaning |", "|---|---|", *(f"| `{c}` | {text} |" for c, text in columns.items()), ""]
        )


if __name__ == "__main__":
    PAGE.write_text(page())
