"""What ``run.explain()`` returns: text in a terminal; sentences, a table and a picture in a notebook."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dasklab.breakdown.answers.advice.pages import page_name
from dasklab.breakdown.answers.advice.rules import Advice
from dasklab.breakdown.answers.bottlenecks.grounds import Grounds
from dasklab.breakdown.show import operation_table, why, wording
from dasklab.breakdown.show.answer import Sentences, answer
from dasklab.breakdown.show.explain import Explained, explain
from dasklab.breakdown.show.wording import Row
from dasklab.errors import plain
from dasklab.results.run import open_trial
from dasklab.terminal import prose, table_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Readable on light and dark pages: colours are inherited, lines are half transparent.
STYLE = "border-collapse:collapse;text-align:left;border-bottom:1px solid #8888"
CELL = "padding:0 1em 0 0;vertical-align:top;text-align:left"
PICTURE = "fill:currentColor;max-width:100%"  # letters have no colour of their own
BLACK, PALE, HALF_TRANSPARENT = "#000000", "#e6e6e0", "#8884"  # of ticks and of the grid


class Explanation:
    """A record's time breakdown, to be shown."""

    def __init__(self, explained: Explained) -> None:
        self.explained = explained

    @cached_property
    def _answer(self) -> Sentences:
        return answer(self.explained)

    @cached_property
    def _tables(self) -> list[tuple[Row, list[Row]]]:
        return [
            (operation_table.HEAD, list(operation_table.largest_rows(self.explained))),
            (wording.HEAD, list(wording.rows(self.explained.summary, wording.MOST_CAUSES))),
        ]

    def __str__(self) -> str:
        sentences = [*self._answer.texts, *(f"- {piece}" for piece in self.explained.advice)]
        tables = [table_text(head, rows) for head, rows in self._tables if rows]
        return "\n\n".join([*map(prose, sentences), *tables])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        text = "".join(f"<p>{html_text(sentence)}</p>" for sentence in self._answer.texts)
        text += "".join(map(_html_advice, self.explained.advice))
        tables = "".join(html_table(head, rows) for head, rows in self._tables if rows)
        return text + tables + self._picture()

    def why(self, clause: str = "") -> EvidenceTable:
        """List what a clause rests on, such as "waiting for a lock"; without one, all of the sentence.

        Raises:
            LabError: the explanation has no such clause.
        """
        return EvidenceTable(why.why(self.explained.median_repeat, clause, self.explained.advice))

    def _picture(self) -> str:
        """Draw what happened over time, if matplotlib is installed."""
        try:
            from dasklab.breakdown.show import pictures
        except ImportError:
            return "<p>For a picture: pip install dasklab[report]</p>"
        it = self.explained
        return html_picture(
            pictures.over_time(it.trial.name, it.median_repeat, it.operations, it.facts.memory)
        )


class EvidenceTable:
    """What clauses of an explanation rest on, to be shown: a table that a person can check."""

    def __init__(self, clauses: Sequence[Grounds]) -> None:
        self.clauses = clauses

    def __str__(self) -> str:
        return table_text(why.HEAD, why.rows(self.clauses))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(why.HEAD, why.rows(self.clauses))


def explain_folder(folder: Path) -> Explanation:
    """Explain the record in a folder."""
    return Explanation(explain(open_trial(folder)))


def _html_advice(piece: Advice) -> str:
    page = piece.rule.page
    link = f'<a href="{html.escape(page)}">{html.escape(page_name(page))}</a>' if page else ""
    return f"<p>→ {html_text(str(piece).removesuffix(page))}{link}</p>"


def html_text(text: str) -> str:
    """Return a text as a page shows it: without markup, and with escapes for what is not printable."""
    return html.escape(plain(text))


def html_table(head: Row, rows: Iterable[Row]) -> str:
    lines = [_html_row("th", head), *(_html_row("td", row) for row in rows)]
    return f'<table style="{STYLE}">{"".join(lines)}</table>'


def html_picture(figure: Figure) -> str:
    """Return a figure whose text and lines have the colour of the page's text, on the page's background."""
    svg = io.StringIO()
    figure.savefig(svg, format="svg", transparent=True)
    text = svg.getvalue().replace(BLACK, "currentColor").replace(PALE, HALF_TRANSPARENT)
    return f'<div style="{PICTURE}">{text[text.index("<svg") :]}</div>'


def _html_row(tag: str, cells: Row) -> str:
    return f"<tr>{''.join(f'<{tag} style={CELL!r}>{html_text(cell)}</{tag}>' for cell in cells)}</tr>"
