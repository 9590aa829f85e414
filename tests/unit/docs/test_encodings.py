"""Text files are read and written as UTF-8, whatever the encoding of the system is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

LAB = Path(__file__).parents[3] / "lab"
OWN = ("atomic", "os", "tarfile", "zipfile")  # their functions of these names take other arguments


def without_encoding(source: str) -> Iterator[int]:
    """Yield the lines of calls that open a text file and leave the encoding to the system."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    for call in filter(_opens_text, calls):
        if not {keyword.arg for keyword in call.keywords} & {"encoding", None}:
            yield call.lineno


def _opens_text(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "open" and _is_text(call, 1)
    if not isinstance(function, ast.Attribute) or ast.unparse(function.value) in OWN:
        return False
    if function.attr == "open":
        return _is_text(call, 0)
    before_encoding = {"read_text": 0, "write_text": 1}.get(function.attr)
    return before_encoding is not None and len(call.args) <= before_encoding


def _is_text(call: ast.Call, position: int) -> bool:
    """Return whether the mode of a call of ``open`` is known and does not say binary."""
    modes = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    mode = [*modes, *call.args[position:], ast.Constant("r")][0]
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and "b" not in mode.value


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("path.read_text()", [1]),
        ("path.read_text(encoding='utf-8')", []),
        ("path.read_text('ascii')", []),
        ("path.write_text(text)", [1]),
        ("atomic.write_text(path, text)", []),
        ("path.open()", [1]),
        ("path.open('rb')", []),
        ("open(path, 'w')", [1]),
        ("open(path, mode='wb')", []),
    ],
)
def test_calls_without_encoding_are_found(source: str, lines: list[int]) -> None:
    assert list(without_encoding(source)) == lines


@pytest.mark.parametrize("package", ["dasklab", "daskwire"])
def test_text_files_have_an_encoding(package: str) -> None:
    found = [
        f"{file.relative_to(LAB)}:{line}"
        for file in sorted((LAB / package).rglob("*.py"))
        for line in without_encoding(file.read_text(encoding="utf-8"))
    ]
    assert found == []
