"""The rooms of ``daskwire``: what may import what."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import daskwire
import pytest

WIRE = Path(daskwire.__file__).parent
MODULES = {
    ".".join(path.relative_to(WIRE.parents[1]).with_suffix("").parts).removesuffix(".__init__"): path
    for path in WIRE.rglob("*.py")
}
SHARED = {"dasklab.atomic"}  # it needs the standard library alone
FACADE = {"daskwire", "daskwire.__main__"}


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Names of all modules that a file imports, wherever in it, for type checkers too."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = str(node.module)
            names = [f"{base}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else base for name in names)


def graph(room: int | None = None) -> dict[str, set[str]]:
    """Who imports whom in daskwire; with ``room`` the names are shortened to so many parts."""
    found: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        here = ".".join(module.split(".")[:room])
        there = {".".join(name.split(".")[:room]) for name in imported(path) if name in MODULES}
        found.setdefault(here, set()).update(there - {here})
    return found


def cycle(of: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(of).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_found() -> None:
    assert set(cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


@pytest.mark.parametrize("room", [None, 3], ids=["modules", "rooms"])
def test_no_circle_of_imports(room: int | None) -> None:
    assert len(MODULES) > 40 and "daskwire.net.tcp" in graph()["daskwire.opening"]
    assert cycle(graph(room)) == []


def test_nothing_imports_the_facade_but_the_outside() -> None:
    inside = {module: names for module, names in graph().items() if module not in FACADE}
    assert not {module for module, names in inside.items() if names & FACADE}


def test_wire_knows_nothing_of_the_lab() -> None:
    for path in MODULES.values():
        foreign = [
            n
            for n in imported(path)
            if n.split(".")[0] == "lab" and not f"{n}.".startswith("daskwire.") and n not in SHARED
        ]
        assert not foreign, (path, foreign)
        assert "pickle.load" not in path.read_text()
        assert len(path.read_text().splitlines()) < 400
