"""The reference of daskwire: tables and problems as they describe themselves, the API from its docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import daskwire
from daskwire import TABLES, Capture
from daskwire.analysis.problems.finding import COSTLY_S
from daskwire.analysis.problems.kinds import KINDS
from daskwire.analysis.tables.completeness import ROWS, Rows
from daskwire.decoder.dask.messages import Messages
from daskwire.decoder.net.segments import Segments

ATTRIBUTES = (
    "files", "messages", "segments", "nodes", "sources", "clusters", "scheduler_names", "packets", "skipped",
    "tally", "generation", "connections", "conversations",
)  # fmt: skip
METHODS = ("table", "content", "decoded")
NOTE = "op_note"  # for the tables only
TYPES = {  # of annotations
    "Ints": "i8", "U32": "u4", "U16": "u2", "npt.NDArray[np.int32]": "i4", "list[str]": "list of str",
    "list[Any]": "list", "list[Note | None]": "list", "npt.NDArray[np.object_]": "array of str",
    "npt.NDArray[np.bool_]": "array of bool",
}  # fmt: skip


def tables() -> str:
    """Describe the columns of all tables."""
    return "\n".join(_tables())


def problems() -> str:
    """Describe all kinds of problems."""
    return "\n".join(_problems())


def interface() -> str:
    """Describe the Python API from its docstrings."""
    return "\n".join(_interface())


def _tables() -> Iterator[str]:
    for name, columns in TABLES.items():
        yield f"## {name}\n"
        yield from _invariants(ROWS[name])
        yield "\n".join(
            ["| column | meaning |", "|---|---|", *(f"| `{c}` | {text} |" for c, text in columns.items()), ""]
        )


def _invariants(rows: Rows) -> Iterator[str]:
    """Say how the rows of a table are sorted, what identifies one, and which values may be unknown."""
    sentences = [
        ("Sorted by", rows.sorted_by),
        ("One row for each combination of", rows.unique),
        ("May be unknown:", sorted(rows.optional)),
        ("May be negative:", sorted(rows.signed)),
    ]
    text = " ".join(
        f"{start} {', '.join(f'`{c}`' for c in columns)}." for start, columns in sentences if columns
    )
    if text:
        yield f"{text}\n"


def _problems() -> Iterator[str]:
    yield f"Most problems are notes if they cost less than {COSTLY_S} s.\n"
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


def _interface() -> Iterator[str]:
    for name in daskwire.__all__:
        value = getattr(daskwire, name)
        yield f"## {name}\n"
        if name == "TABLES":
            yield "The columns of each table: name of the table -> name of the column -> its meaning.\n"
        elif name == "Capture":
            yield from _capture()
        else:
            yield from _callable(name, value)
    for arrays in (Messages, Segments):
        yield f"## {arrays.__name__}\n"
        yield _documentation(arrays).partition("\n\n")[0] + "\n"
        yield from _members(
            [(n, inspect.get_annotations(arrays).get(n, ""), t) for n, t in _documented(arrays)]
        )


def _callable(name: str, value: Any) -> Iterator[str]:
    """Show a function or an exception: signature, description, and a list per section of the docstring."""
    if inspect.isfunction(value):
        signature = str(inspect.signature(value)).replace("'", "")
        yield f"```python\n{name}{signature}\n```\n"
    description, *sections = re.split(r"\n(?=(?:Args|Returns|Raises):\n)", _documentation(value))
    yield " ".join(description.split()).replace("``", "`") + "\n"
    for section in sections:
        title, _, text = section.partition(":\n")
        rows = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", text, re.MULTILINE)
        lines = [f"- `{key}`: {_one_line(meaning)}" for key, meaning in rows] or [f"- {_one_line(text)}"]
        yield f"{title}:\n\n" + "\n".join(lines) + "\n"


def _capture() -> Iterator[str]:
    yield _documentation(Capture).partition("\n\n")[0] + "\n"
    described, annotations = dict(_documented(Capture)), inspect.get_annotations(Capture)
    rows = []
    for name in ATTRIBUTES:
        member = inspect.getattr_static(Capture, name, None)
        function = member.func if isinstance(member, cached_property) else getattr(member, "fget", None)
        kind = inspect.get_annotations(function)["return"] if function else annotations[name]
        rows.append((name, kind, _documentation(function) if function else described[name]))
    yield from _members(rows)
    for name in METHODS:
        yield f"### Capture.{name}\n"
        yield from _callable(name, getattr(Capture, name))


def _documented(cls: type) -> list[tuple[str, str]]:
    """Return the attributes in a class's docstring, and their meaning."""
    text = _documentation(cls).partition("Attributes:\n")[2]
    return re.findall(r"^    (\w+): (.*(?:\n     .*)*)", text, re.MULTILINE)


def _members(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    yield "| attribute | type | meaning |\n|---|---|---|"
    for name, kind, meaning in rows:
        yield f"| `{name}` | {TYPES.get(kind, f'`{kind}`')} | {_one_line(meaning)} |".replace(
            " | None", " or None"
        )
    yield ""


def _documentation(value: Any) -> str:
    return inspect.getdoc(value) or ""


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")
