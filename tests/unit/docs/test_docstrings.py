"""Docstrings name only what exists. Names of other programs stand in single backticks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

LAB = Path(__file__).parents[3] / "lab"
DATA = (
    "lab/**/*.json",
    "lab/**/*.lua",
    "lab/**/*.yml",
    "roles/**/*.yml",
    "roles/**/*.j2",
    "playbooks/**/*.yml",
)
WORD = r"[A-Za-z_]\w*"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def words(tree: ast.Module, docstrings: set[str]) -> Iterator[str]:
    """Yield the names and the words of strings in a module, but for its docstrings."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name"):
            if isinstance(name := getattr(node, field, None), str):
                yield from name.split(".")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in docstrings:
            yield from re.findall(WORD, node.value)


def test_words_in_double_backticks_are_names_of_code() -> None:
    known, named = set[str](), list[tuple[Path, str]]()
    for path in LAB.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {node.body[0].value.value for node in ast.walk(tree)  # as written, for `words`
                 if isinstance(node, DOCUMENTED) and ast.get_docstring(node)}  # fmt: skip
        known |= {path.stem, *words(tree, texts)}
        named += [
            (path, name)
            for text in texts
            for name in re.findall(rf"``((?:{WORD}\.)*{WORD})(?:\(\))?``", text)
        ]
    for path in (path for pattern in DATA for path in LAB.parent.glob(pattern)):
        known |= set(re.findall(WORD, path.read_text(encoding="utf-8", errors="ignore")))
    pattern = re.compile(r"\w+[N_]")  # netN stands for net0, net1 ..., dask_ for what begins so
    names = [(path, name, name.rpartition(".")[2]) for path, name in named]
    unknown = [
        (path.name, name) for path, name, last in names if last not in known and not pattern.fullmatch(last)
    ]
    assert unknown == []
