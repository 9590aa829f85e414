"""The pictures of a section: its metrics and its capture, as files and within the page."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dasklab.model.files import Campaign
from dasklab.plotting import label_figure, save
from dasklab.report.drawings import figures
from dasklab.report.words import sentences
from dasklab.report.words.levels import Words
from dasklab.results.statistics.answer import Answer

Study = Mapping[str, Any]  # the study's figures, by name
Drawings = Mapping[str, tuple[str, Figure]]  # by the end of the file's stem: caption and figure
STUDY_CAPTURES = {  # drawn beside the study's
    "traffic", "series", "composition", "counting", "heartbeat", "intervals",
}  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """A figure: its caption, its file's stem, and the SVG as a data URI.

    ``of_study`` says that it shows data of the 2019 study, too.
    """

    caption: str
    stem: str
    uri: str
    of_study: bool


def draw_answers(
    results: Mapping[str, Answer], frame: pd.DataFrame, document: Campaign, study: Study, words: Words
) -> Drawings:
    """Draw each metric that has cells to compare."""
    drawings = {}
    for metric, answer in results.items():
        figure = study.get(document.experiment["metrics"][metric])
        caption = sentences.sentence(answer, words)
        if figure:
            caption += f" Grey: the study's “{figure['title']}”, {figure['statistic']}."
        if len(answer.cells) > 1:
            drawings[metric] = (caption, figures.draw(answer, frame, figure))
    return drawings


def save_pictures(drawings: Drawings, stem: Path, of_study: set[str], simulated: bool) -> Iterator[Picture]:
    """Write the figures to files whose names begin with ``stem``, and yield them.

    Those of a simulated run are marked themselves, because they may be copied without the page.
    """
    for end, (caption, figure) in drawings.items():
        if simulated:
            label_figure(figure, "simulated")
            caption = f"Simulated. {caption}"
        file = stem.with_name(f"{stem.name}-{end}")
        uri = "data:image/svg+xml;base64," + base64.b64encode(save(figure, file).encode()).decode()
        yield Picture(caption, file.name, uri, end in of_study)


def drawn_of_study(results: Mapping[str, Answer], document: Campaign, study: Study) -> set[str]:
    """Return the names of the drawings that show data of the 2019 study."""
    compared = {metric for metric in results if study.get(document.experiment["metrics"][metric])}
    return compared | (STUDY_CAPTURES if study else set())
