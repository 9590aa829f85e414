"""The rooms of minipve: no module and no room imports in a circle, and nothing of its own client is used.

All imports count, also those inside functions and those for type checkers only.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HOUSE = "minipve"
# What `doctor` grants on a node is granted here; how commands report errors; paths, caches, files and wheels.
OUTSIDE = {
    *(
        "dasklab.errors",
        "dasklab.terminal",
        "dasklab.machines.privileges",
        "dasklab.path_types",
        "dasklab.paths",
        "dasklab.wheels",
    ),
    "dasklab.atomic",
}
Graph = dict[str, set[str]]


def name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name(file): file for file in (ROOT / "lab/minipve").rglob("*.py") if "guest" not in file.parts}


def imported(module: str) -> Iterator[str]:
    """Everything of the project that a module imports, whichever way."""
    for part in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(part, ast.ImportFrom) and part.module and part.module.startswith("lab"):
            for alias in part.names:
                inner = f"{part.module}.{alias.name}"
                yield inner if inner in MODULES or part.module == "dasklab.machines" else part.module
        elif isinstance(part, ast.Import):
            yield from (alias.name for alias in part.names if alias.name.startswith("lab."))


def rooms(modules: Graph) -> Graph:
    """The same graph between folders; a module beside the folders is a room of its own."""
    found: Graph = {}
    for module, targets in modules.items():
        found.setdefault(room(module), set()).update({room(t) for t in targets} - {room(module)})
    return found


def room(module: str) -> str:
    return ".".join(module.split(".")[:3])


def circle(graph: Graph) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.fixture(scope="module")
def modules() -> Graph:
    return {module: {t for t in imported(module) if t in MODULES} - {module} for module in MODULES}


def test_the_walk_sees_the_imports(modules: Graph) -> None:
    assert "minipve.config.schema" in modules["minipve.config.store"]
    assert "minipve.daemon" in modules["minipve.cli"], "an import inside a function"
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []


def test_no_module_imports_itself_by_a_detour(modules: Graph) -> None:
    assert circle(modules) == []


def test_no_room_imports_itself_by_a_detour(modules: Graph) -> None:
    assert circle(rooms(modules)) == []


def test_the_endpoint_shares_no_code_with_its_client() -> None:
    used = {t for module in MODULES for t in imported(module) if not t.startswith(HOUSE)}
    assert used <= OUTSIDE


def test_nothing_outside_minipve_knows_minipve() -> None:
    """One road to a hypervisor: only the command line mounts it, only the embedded inventory names it."""
    ask = ["git", "grep", "-lIw", "minipve", "--", "lab", "roles", "playbooks"]
    found = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert [f for f in found if not f.startswith("lab/minipve/")] == ["lab/dasklab/cli.py"]
