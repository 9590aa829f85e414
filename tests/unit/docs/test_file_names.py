"""Pages for contributors name only files that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOP = "lab|roles|playbooks|collection|benchmarks|tests|docs|inventory"
FROM_ROOT = re.compile(rf"(?<![\w./-])(?:{TOP})/[\w./*-]*[\w*/]")
IN_CODE = re.compile(r"`([\w.*-]+/[\w./*-]+|[\w-]+\.py)`")
PLACEHOLDER = re.compile(r"[A-Z]{4}|_build")  # NAME.py stands for any name; what Sphinx builds is not in Git
PAGES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "README.md",
    ROOT / "tests/README.md",
    *(ROOT / "docs").rglob("*.md"),
]
WITH_PATHS_OF_THEIR_OWN = {ROOT / "tests/README.md"}
"""Pages whose paths begin at their own folder."""


def missing(page: Path) -> Iterator[str]:
    """Yield the paths in a page that lead nowhere."""
    text = page.read_text(encoding="utf-8")
    names = set(FROM_ROOT.findall(text))
    if page in WITH_PATHS_OF_THEIR_OWN:
        names |= set(IN_CODE.findall(text))
    for name in sorted(names):
        folders = (ROOT, ROOT / "lab", page.parent)
        is_there = any(any(folder.glob(name.rstrip("/"))) for folder in folders)
        if not is_there and not PLACEHOLDER.search(name):
            yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    assert list(missing(page)) == []
