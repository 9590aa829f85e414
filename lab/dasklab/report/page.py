"""One self-contained HTML page, its figures as SVG and PNG, and the same content as Markdown."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from dasklab import atomic
from dasklab.model.metric import METRICS
from dasklab.model.number_format import format_number
from dasklab.report import sentences
from dasklab.report.levels import apart
from dasklab.report.section import Section, section
from dasklab.report.time_parts import PARTS
from dasklab.results.statistics import reasons
from dasklab.results.statistics.interval import format_interval
from dasklab.results.storage import store

TEMPLATES = Path(__file__).parent
STUDY = TEMPLATES.parent / "study_2019.json"


def write(runs: list[Path], output: Path) -> Path:
    """Write ``output``/report.html, report.md and the figures, all or nothing; return the page's path.

    Raises:
        LabError: no run has anything to report.
        OSError: the folder cannot be written.
    """
    with atomic.filled(output) as draft:
        _write(runs, draft, output)
    return output / "report.html"


def write_single_file(runs: list[Path], file: Path) -> Path:
    """Write the page alone, without links to the runs' files, so that it can be sent; return ``file``.

    Raises:
        LabError: no run has anything to report.
        OSError: the file cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        _write(runs, Path(folder), None)
        atomic.write_text(file, (Path(folder) / "report.html").read_text(encoding="utf-8"))
    return file


def _write(runs: list[Path], output: Path, page_folder: Path | None) -> None:
    study = json.loads(STUDY.read_text())

    def read(run: Path) -> Section:
        return store.read_steadily(run, partial(section, run, study["figures"], output, page_folder))

    sections = [content for _, content in store.for_each_run(runs, read)]
    answers = {section.name: section.answers for section in sections if not section.simulated}
    page = {
        "sections": sections,
        "verdicts": [sentences.verdict(finding, answers) for finding in study["findings"]],
        "study": study,
        "metrics": METRICS,
        "contrasts": sentences.contrasts,
        "not_shown": reasons.not_shown,
        "parts": PARTS,
        "apart": apart,
    }
    for name in ("report.html", "report.md"):
        (output / name).write_text(_templates().get_template(f"{name}.j2").render(page), encoding="utf-8")


def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": format_number, "interval": format_interval, "facts": sentences.facts}
    return environment
