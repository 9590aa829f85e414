"""Write the reference of daskwire's tables and problems under ``docs/reference`` from their descriptions.

python -m tests.wire_reference
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from daskwire import TABLES
from daskwire.problems.kinds import COSTLY_S, KINDS

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
GENERATED = "This page is generated: `python -m tests.wire_reference`."
TABLES_INTRODUCTION = f"""# Tables of daskwire

Times `*_ns` are nanoseconds since 1970 on the clock of the capturing machine, `*_s` seconds since 1970 on the
worker's clock. Unknown values are empty. `daskwire.TABLES` and the metadata of Parquet files contain the same
descriptions. {GENERATED}
"""
PROBLEMS_INTRODUCTION = f"""# Problems that daskwire reports

`daskwire problems CAPTURE` lists what is wrong, or prints "no problem found". Each problem has its evidence,
its place and time, what it cost, how certain it is, a Wireshark display filter for its packets, and what to
check.

- **Cost** is the time that Dask messages waited, summed over connections. Problems are ranked by it. What
  prevents the analysis (encryption, a wrong capture point) comes first.
- **Notes** are findings below the threshold (most cost less than {COSTLY_S} s), or during start-up and
  shutdown. A cluster starts up until its first computation is complete or 10 s after its first result, a
  worker until its first result.
- **Consequences** are notes as well: a stopped process closes its window and sends its heartbeats late, so
  both are listed as consequences of the blocked loop, and their cost is added to it.

{GENERATED}
"""


def pages() -> dict[Path, str]:
    """Return the text of each page."""
    return {
        REFERENCE / "wire-tables.md": "\n".join([TABLES_INTRODUCTION, *_tables()]),
        REFERENCE / "wire-problems.md": "\n".join([PROBLEMS_INTRODUCTION, *_problems()]),
    }


def _tables() -> Iterator[str]:
    for name, columns in TABLES.items():
        yield f"## {name}\n"
        yield "\n".join(
            ["| column | meaning |", "|---|---|", *(f"| `{c}` | {text} |" for c, text in columns.items()), ""]
        )


def _problems() -> Iterator[str]:
    yield "| problem | meaning | reported if | what to do |"
    yield "|---|---|---|---|"
    for kind in KINDS.values():
        yield f"| {kind.name} | {kind.meaning} | {kind.threshold} | {kind.advice} |"
    yield "\n## Consequences\n"
    yield "| problem | kinds that may be its consequences |"
    yield "|---|---|"
    for kind in KINDS.values():
        if kind.effects:
            yield f"| {kind.name} | {', '.join(sorted(kind.effects))} |"
    yield ""


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
