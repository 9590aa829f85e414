"""What a capture adds to its section of the report."""

from __future__ import annotations

from dataclasses import dataclass, field

from matplotlib.figure import Figure


@dataclass(frozen=True)
class TextTable:
    """A table of texts. With ``numbers``, all columns but the first are aligned as numbers."""

    title: str
    head: list[str]
    rows: list[list[str]]
    numbers: bool = True


@dataclass(frozen=True)
class Content:
    """Sentences, figures (by stem, with captions) and tables. Contents can be added."""

    sentences: list[str] = field(default_factory=list)
    figures: dict[str, tuple[str, Figure]] = field(default_factory=dict)
    tables: list[TextTable] = field(default_factory=list)

    def __add__(self, other: Content) -> Content:
        return Content(
            self.sentences + other.sentences, self.figures | other.figures, self.tables + other.tables
        )


def group(node: str) -> str:
    """Return ``workers`` for ``worker-2``; client and scheduler are groups of their own."""
    name = node.partition("-")[0]
    return "workers" if name == "worker" else name
