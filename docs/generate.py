"""Write what is generated of the documentation.

python -m docs.generate

A part of a page lies between ``<!-- generated: NAME -->`` and ``<!-- end -->``; the rest is written by hand.
To add a part, write its function in ``docs/parts`` and a row here, and put the markers into the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dasklab.comparison.check import CheckedRecords
from dasklab.model.forms.json_output import json_schema

from docs.parts import breakdown, commands, minipve_methods, outputs, records, roles, wire

ROOT = Path(__file__).resolve().parents[1]
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

PAGES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "docs/explanation/time-breakdown.md": {
        "stages": breakdown.stage_figure,
        "causes": breakdown.cause_table,
        "advice": breakdown.advice_table,
        "invariants": breakdown.invariant_list,
    },
    "docs/how-to/roles.md": {"roles": roles.overview},
    "docs/reference/commands.md": {"commands": commands.reference},
    "docs/reference/minipve-methods.md": {
        "version": minipve_methods.version,
        "summary": minipve_methods.summary,
        "here": minipve_methods.here,
        "refused": minipve_methods.refused,
        "missing": minipve_methods.missing,
    },
    "docs/reference/records.md": {"tables": records.tables},
    "docs/reference/wire-api.md": {"api": wire.interface},
    "docs/reference/wire-problems.md": {"problems": wire.problems},
    "docs/reference/wire-tables.md": {"tables": wire.tables},
    "lab/minipve/README.md": {"summary": minipve_methods.summary},
    **{f"roles/{role.name}/README.md": {"role": partial(roles.readme, role)} for role in roles.roles()},
}
"""Page -> its generated parts -> the function that returns the part."""

SCHEMAS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "docs/reference/check.schema.json": lambda: json_schema(CheckedRecords),
    "docs/reference/output.schema.json": outputs.schema,
}
"""File of a JSON Schema -> the function that returns it."""


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file and its text as it should be."""
    for name, parts in PAGES.items():
        yield ROOT / name, page((ROOT / name).read_text(encoding="utf-8"), parts)
    for name, schema in SCHEMAS.items():
        yield ROOT / name, json.dumps(schema(), indent=2) + "\n"


def page(text: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """Return a page with its generated parts as they are today.

    Raises:
        ValueError: the markers are not those of the parts.
    """
    markers = [name for _, name, _ in PART.findall(text)]
    if markers != list(parts):
        raise ValueError(f"the markers of the page are {markers}, its parts {list(parts)}")
    return PART.sub(lambda marker: f"{marker[1]}{parts[marker[2]]().strip()}\n{marker[3]}", text)


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text, encoding="utf-8")
