"""Pages and schemas that are generated are as `python -m docs.generate` writes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import generate

FILES = dict(generate.files())
PAGES = [*(generate.ROOT / "docs").rglob("*.md"), *(generate.ROOT / "lab").rglob("README.md")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(generate.ROOT)))
def test_file_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == FILES[path], "run: python -m docs.generate"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(generate.ROOT)))
def test_page_with_markers_is_in_the_table(path: Path) -> None:
    markers = re.findall("<!-- generated: ", path.read_text(encoding="utf-8"))
    assert not markers or str(path.relative_to(generate.ROOT)) in generate.PAGES


def test_part_replaces_what_is_between_its_markers() -> None:
    text = "by hand\n<!-- generated: a -->\nold\n<!-- end -->\nby hand\n"
    assert generate.page(text, {"a": lambda: "new\n"}) == text.replace("old", "new")


def test_page_without_its_markers_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"markers of the page are \[\], its parts \['a'\]"):
        generate.page("by hand\n", {"a": lambda: "new"})
