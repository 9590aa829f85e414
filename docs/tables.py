"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def markdown_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    names = list(heads)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)
