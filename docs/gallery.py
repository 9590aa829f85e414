"""Show stored runs on pages. To store a run: ``dasklab results pack RUN -o docs/gallery/NAME.zip``.

``{report} NAME`` shows what the first lines of its report say (the question, the answer and how certain it
is), the picture and a link. The report itself is written beside the pages when they are built.
``{cells} NAME`` is a table: what was measured in each cell.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

from dasklab import report
from dasklab.model.forms.number_format import UNKNOWN
from dasklab.model.settings.metric import METRICS
from dasklab.report.words.levels import cell_label, level_words
from dasklab.results import pack
from dasklab.results.run import Run, open_run
from dasklab.results.statistics.answers import answers
from dasklab.results.statistics.interval import format_interval
from dasklab.results.table import table
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from tables import markdown_table

STORED = Path(__file__).parent / "gallery"
WRITTEN = Path("docs", "gallery")  # in the folder of the built pages
PROGRAM = Path(report.__file__).parents[1]
WRITES_REPORTS = {".py", ".js", ".j2", ".json"}
TOP = re.compile(r"^## .+\n\n\*(?P<question>.+)\*\n\n(?P<answer>.+)\n\n(?P<certainty>.+)$", re.M)
MEASURED = re.compile(r"^- Measured: (.+)$", re.M)


def write_reports(app: Sphinx) -> None:
    """Write the report of each stored run that has none yet, or one older than the run or the program."""
    program = max(path.stat().st_mtime for path in PROGRAM.rglob("*") if path.suffix in WRITES_REPORTS)
    for stored in sorted(STORED.glob("*.zip")):
        folder = Path(app.outdir, WRITTEN, stored.stem)
        first = folder / "report.html"
        if not first.exists() or first.stat().st_mtime < max(program, stored.stat().st_mtime):
            report.write([Run(pack.unpack(stored))], folder)


class Report(SphinxDirective):
    """What a stored run's report says first, its picture, and a link to it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes.

        Raises:
            DirectiveError: no such run is stored.
        """
        name = self.arguments[0]
        folder = Path(self.env.app.outdir, WRITTEN, name)
        if not (folder / "report.md").exists():
            raise self.error(f"no run is stored as {STORED / name}.zip")
        self.env.note_dependency(str(STORED / f"{name}.zip"))
        text = (folder / "report.md").read_text(encoding="utf-8")
        top, measured = TOP.search(text), MEASURED.search(text)
        assert top and measured, f"{folder}: the report begins in another way than expected"
        page = Path(self.env.doc2path(self.env.docname, base=False))
        place = os.path.relpath(WRITTEN / name, page.parent)
        pictures = [path.name for path in folder.glob("*-compute_s.svg")]
        return [
            nodes.paragraph("", "", nodes.emphasis(text=top["question"])),
            nodes.paragraph(text=top["answer"]),
            nodes.paragraph(text=f"{top['certainty']} Measured {measured[1]}."),
            *(_picture(f"{place}/{picture}", top["answer"]) for picture in pictures),
            nodes.raw("", f'<p><a href="{place}/report.html">Open the report</a></p>', format="html"),
        ]


class Cells(SphinxDirective):
    """A table of a stored run: the median of each metric in each cell, with its 95 % interval."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes."""
        stored = STORED / f"{self.arguments[0]}.zip"
        self.env.note_dependency(str(stored))
        return self.parse_text_to_nodes(_cells(open_run(stored)))


def _cells(run: Run) -> str:
    """Return the table in Markdown."""
    words = level_words(run.document.experiment["factors"])
    measured = [answer for answer in answers(table(run), run.metrics).values() if answer]
    rows: dict[str, dict[str, str]] = {}
    for answer in measured:
        metric = METRICS[answer.metric]
        for cell in answer.cells:
            median = format_interval(cell.median, metric.unit, metric.format)
            rows.setdefault(cell_label(answer, cell, words), {})[metric.title] = median
    titles = [METRICS[answer.metric].title for answer in measured]
    heads = [title[:1].upper() + title[1:] for title in titles]
    texts = ([label, *(row.get(title, UNKNOWN) for title in titles)] for label, row in rows.items())
    return markdown_table(["Cell", *heads], texts)


def _picture(uri: str, words: str) -> nodes.raw:
    return nodes.raw(
        "", f'<img class="report" src="{uri}" alt="{html.escape(words)}" loading="lazy">', format="html"
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and what writes the reports."""
    app.connect("builder-inited", write_reports)
    app.add_directive("report", Report)
    app.add_directive("cells", Cells)
    return {"parallel_read_safe": True}
