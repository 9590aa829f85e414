"""The report: a folder of pages that link to each other, figures as SVG and PNG, and a page as Markdown."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dasklab import atomic
from dasklab.model.settings.metric import METRICS
from dasklab.report.pages import study_page
from dasklab.report.pages.section import Section, anchor_of, section
from dasklab.report.pages.side_by_side import side_by_side
from dasklab.report.templates.rendering import TEMPLATES, render
from dasklab.report.words import sentences
from dasklab.report.words.levels import cell_label
from dasklab.results.run import Run, Trial, for_each_run, read_steadily
from dasklab.results.statistics import reasons

STUDY = TEMPLATES.parents[1] / "study_2019.json"


Progress = Callable[[str], None]
"""Gets what is being done, for a reader who waits."""


def no_progress(what: str) -> None:
    """Ignore what is being done: nobody waits for it."""


def write(
    runs: list[Run], output: Path, progress: Progress = no_progress, record: Trial | None = None
) -> Path:
    """Write the pages, report.md and the figures to ``output``, all or nothing; return the first page's path.

    Args:
        record: compared with the runs of its twin.

    Raises:
        LabError: no run has anything to report.
        OSError: the folder cannot be written.
    """
    with atomic.filled(output) as draft:
        _write(runs, draft, output, progress, record)
    return output / "report.html"


def write_single_file(
    runs: list[Run], file: Path, progress: Progress = no_progress, record: Trial | None = None
) -> Path:
    """Write the first page alone, without links to other files, so that it can be sent; return ``file``.

    Raises:
        LabError: no run has anything to report.
        OSError: the file cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        _write(runs, Path(folder), None, progress, record)
        atomic.write_text(file, (Path(folder) / "report.html").read_text(encoding="utf-8"))
    return file


def _write(
    runs: list[Run], output: Path, page_folder: Path | None, progress: Progress, record: Trial | None
) -> None:
    study = json.loads(STUDY.read_text(encoding="utf-8"))
    anchors: set[str] = set()

    def read(run: Run) -> Section:
        anchor = anchor_of(run, anchors)
        content = read_steadily(
            run, lambda run: section(run, study["figures"], output, page_folder, anchor, progress, record)
        )
        anchors.add(anchor)
        return content

    sections = [content for _, content in for_each_run(runs, read)]
    answers = {section.document.name: section.answers for section in sections if not section.simulated}
    content: dict[str, Any] = {
        "sections": sections,
        "pairs": side_by_side(sections),
        "verdicts": [sentences.verdict(finding, answers) for finding in study["findings"]],
        "study": study,
        "study_page": None,
        "single": page_folder is None,
        "metrics": METRICS,
        "contrasts": sentences.contrasts,
        "not_shown": reasons.not_shown,
        "cell_label": cell_label,
    }
    if page_folder is not None:
        content["study_page"] = study_page.write(content, output)
    for name in ("report.html", "report.md"):
        (output / name).write_text(render(name, content), encoding="utf-8")
