"""A page for each trial: settings, repeats, time breakdown, an interactive timeline, downloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dasklab import records
from dasklab.breakdown.answers.advice.pages import page_name
from dasklab.breakdown.show.answer import answer
from dasklab.breakdown.show.explain import Explained, explain
from dasklab.errors import LabError
from dasklab.notices import warn
from dasklab.report.drawings.time_parts import time_table
from dasklab.report.drawings.timeline import drawing
from dasklab.report.drawings.timeline.panels import panels
from dasklab.report.templates.rendering import render
from dasklab.report.trials.downloads import downloads
from dasklab.report.trials.trial_rows import FOLDER, TrialRow
from dasklab.results.run import Trial


@dataclass(frozen=True)
class TrialContext:
    """What a trial's page shows of the section that it belongs to."""

    anchor: str
    title: str
    mark: str
    metric: str
    names: Mapping[str, str]  # cell -> its name in the report


@dataclass(frozen=True)
class Timeline:
    """The timeline of one repeat: a document for BokehJS, and what a reader must know about it."""

    document: str
    repeat: str
    notes: Sequence[str]


def write_trial_pages(
    context: TrialContext,
    rows: Sequence[TrialRow],
    explained: Mapping[Trial, Explained],
    output: Path,
    page_folder: Path,
    progress: Callable[[str], None],
) -> None:
    """Write a page for each trial to ``output``/trials, with its downloads, and BokehJS once.

    Args:
        explained: the time breakdowns of trials.
        page_folder: where the report will be, for links to the trials' files.
        progress: gets what is being done.
    """
    folder = output / FOLDER
    folder.mkdir(exist_ok=True)
    for index, row in enumerate(rows):
        progress(f"{context.title}: page {index + 1} of {len(rows)}")
        breakdown = explained.get(row.trial) or _captured(row.trial)
        timeline = _timeline(breakdown) if breakdown else None
        if timeline and not (folder / drawing.SCRIPT).exists():
            (folder / drawing.SCRIPT).write_bytes(drawing.script())
        content = {
            "about": context,
            "row": row,
            "previous": rows[index - 1] if index else None,
            "next": rows[index + 1] if index + 1 < len(rows) else None,
            "timings": row.trial.timings,
            "timeline": timeline,
            "script": drawing.SCRIPT,
            "downloads": downloads(row, breakdown, folder, page_folder / FOLDER),
            **_breakdown(breakdown),
        }
        (folder / f"{row.anchor}.html").write_text(render("trial.html", content), encoding="utf-8")


def _captured(trial: Trial) -> Explained | None:
    """Return the time breakdown of the captured repeats of a trial that has no timed ones."""
    if records.recorded(trial) or not records.recorded(trial, captured=True):
        return None
    try:
        return explain(trial, captured=True)
    except LabError as error:
        warn(f"{error.message}; the trial has no timeline")
        return None


def _breakdown(explained: Explained | None) -> dict[str, Any]:
    """Return the time breakdown as sentences and a table, and advice; nothing where nothing was recorded."""
    if explained is None or not explained.timed:
        return {"time": None, "sentences": [], "advice": []}
    return {
        "time": time_table({"all threads": explained.summary}),
        "sentences": answer(explained).texts,
        "advice": [
            (str(piece).removesuffix(piece.rule.page), piece.rule.page, page_name(piece.rule.page))
            for piece in explained.advice
        ],
    }


def _timeline(explained: Explained) -> Timeline | None:
    """Return the timeline of the repeat of middle length."""
    if not explained.timed:
        return None
    repeat = explained.median_repeat
    capture = explained.trial.capture if explained.captured else None
    drawn = drawing.reduced(panels(repeat, capture), repeat.makespan)
    if not drawn:
        return None
    notes = [
        f"{panel.title.partition(':')[0]}: {len(panel.rectangles):,} rectangles stand for {panel.intervals:,}"
        f" intervals. Those shorter than {1e3 * panel.merged_s:.3g} ms are drawn together."
        for panel in drawn
        if panel.merged_s
    ]
    kind = "captured repeat" if explained.captured else "repeat"
    number = len(explained.timed)
    which = f"{kind} {repeat.number}" + (f", the middle one of {number} by length" if number > 1 else "")
    return Timeline(drawing.document(drawn, repeat.makespan), which, notes)
