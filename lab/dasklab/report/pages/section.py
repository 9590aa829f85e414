"""One run as a section of the report: its answer, its figures, its tables, and what left the statistics."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from shlex import quote
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.show.explain import Explained, explain_trials, summarise_cells
from dasklab.breakdown.show.wording import paragraph
from dasklab.comparison import wording
from dasklab.comparison.cells import causes_of_cells
from dasklab.comparison.comparison import TIME
from dasklab.errors import LabError
from dasklab.model.experiments.cells import cell_names
from dasklab.model.files import Campaign
from dasklab.model.forms.number_format import format_number
from dasklab.model.settings.metric import METRICS
from dasklab.notices import warn
from dasklab.plotting import label_figure, save
from dasklab.report.drawings import captures, figures
from dasklab.report.drawings.captures.content import Content, TextTable
from dasklab.report.drawings.time_parts import TimeTable, time_table
from dasklab.report.pages.first_screen import Bars, bars, certainty, further_answers, invalid_sentence
from dasklab.report.trials.trial_pages import TrialContext, write_trial_pages
from dasklab.report.trials.trial_rows import TrialRow, by_cell, trial_rows
from dasklab.report.words import sentences
from dasklab.report.words.levels import Words, cell_label, level_words
from dasklab.report.words.notes import InvalidTrials, damaged_trials, invalid_trials, notes, suspicious_trials
from dasklab.report.words.provenance import Fact, provenance
from dasklab.report.words.repeat import repeat_words
from dasklab.results.run import Run, Trial
from dasklab.results.statistics import identity, interaction, slopes
from dasklab.results.statistics.answer import Answer
from dasklab.results.statistics.answers import answers
from dasklab.results.statistics.interval import format_interval
from dasklab.results.table import table
from dasklab.results.validity import completeness

Study = Mapping[str, Any]  # the study's figures, by name
Names = Mapping[str, str]  # of cells, in words
Drawings = dict[str, tuple[str, Figure]]  # by the end of the file's stem: caption and figure
STUDY_CAPTURES = {
    "traffic",
    "series",
    "composition",
    "counting",
    "heartbeat",
    "intervals",
}  # drawn beside the study's


@dataclass(frozen=True)
class Picture:
    """A figure: its caption, its file's stem, and the SVG as a data URI.

    ``of_study`` says that it shows data of the 2019 study, too.
    """

    caption: str
    stem: str
    uri: str
    of_study: bool


@dataclass(frozen=True)
class FirstScreen:
    """What stands above everything else, besides the question and the sentence that answers it."""

    certain: str
    why: str
    bars: Bars | None
    further: list[str]
    invalid: str
    facts: list[Fact]


@dataclass(frozen=True)
class Section:
    """The content of a section.

    Attributes:
        anchor: the name on the page, and the start of the names of the figures' files.
        simulated: where the costs of a simulated run come from.
    """

    anchor: str
    name: str
    simulated: str | None
    mark: str
    run: Run
    document: Campaign
    sentence: str
    captured: list[str]
    first: FirstScreen
    time: TimeTable | None
    words: Words
    answers: dict[str, Answer]
    pictures: list[Picture]
    tables: list[TextTable]
    trials: int
    rows: list[TrialRow]
    main_metric: str
    invalid: list[InvalidTrials]
    identity: dict[str, Any]
    hosts: dict[str, Any]
    notes: list[str]
    time_notes: list[str]
    share_pct: float
    overhead_s: float

    @property
    def when(self) -> str:
        """When the run began, in UTC, from its folder's name; else that name."""
        match = re.fullmatch(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z", self.run.name)
        return "{}-{}-{} {}:{}:{}".format(*match.groups()) if match else self.run.name

    @property
    def trials_of(self) -> dict[str, list[TrialRow]]:
        """The trials of each cell."""
        return by_cell(self.rows)

    def command_to_repeat(self, cell: str) -> str:
        """Return the command that repeats a cell."""
        return f"{repeat_words(self.run)} {quote(cell)}"

    def own_pictures(self, single: bool) -> list[Picture]:
        """The pictures beside the run's own text. Those with the study's data have a page of their own.

        A single file has no other pages, so it has all of them.
        """
        return [picture for picture in self.pictures if single or not picture.of_study]

    @property
    def study_pictures(self) -> list[Picture]:
        """The pictures that show data of the 2019 study."""
        return [picture for picture in self.pictures if picture.of_study]


def anchor_of(run: Run, used: Collection[str]) -> str:
    """Return a name for a run's section that no other section has."""
    name = f"simulated-{run.document.name}" if run.simulated else run.document.name
    names = chain([name, f"{name}-{run.name}"], (f"{name}-{run.name}-{number}" for number in count(2)))
    return next(free for free in names if free not in used)


def section(
    run: Run, study: Study, output: Path, page: Path | None, anchor: str, tell: Callable[[str], None]
) -> Section:
    """Collect the content of a run's section, and write its figures and its trials' pages to ``output``.

    The trials' files are linked from the folder ``page``; without it there are no pages of trials. ``tell``
    gets what is being done.

    A simulated run is marked as such, and is not compared with the study, which was measured.

    Raises:
        LabError: no trial of the run is finished and complete.
    """
    document, frame, trials = run.document, table(run), run.trials
    if not trials:
        raise LabError(
            f"{run.folder}: no trial is finished and complete", f"dasklab run {run.folder} continues it"
        )
    simulated = identity.simulated_from(run)
    study = {} if simulated else study
    by_metric = answers(frame, run.metrics)
    ordered = sorted(by_metric, key=list(METRICS).index)  # time comes first
    names = cell_names(run.experiment)
    results = {metric: _in_order(answer, names) for metric in ordered if (answer := by_metric[metric])}
    words = level_words(document.experiment.get("factors", {}))
    captured = _captured(trials, study)
    explained = {}
    for trial, breakdown in explain_trials(run, valid_only=page is None):
        explained[trial] = breakdown
        tell(f"{document.name}: explained trial {trial.name}")
    main = next(iter(results.values()), None)
    by_cell = _ordered(summarise_cells(run, explained.items()), main)
    labels = _names(main, words)
    summaries = {labels.get(name, name): summary for name, summary in by_cell.items()}
    drawings = {**_draw_answers(results, frame, document, study, words), **captured.figures}
    of_study = _of_study(results, document, study)
    attempts = [trial.attempt for trial in trials]
    measuring_s, wall_s = sum(a.measuring_s for a in attempts), sum(a.wall_s for a in attempts)
    verdicts = [trial.result for trial in trials]
    invalid = invalid_trials(verdicts)
    damaged, hosts, facts = (
        list(damaged_trials(run)),
        next((trial.hosts for trial in trials if trial.hosts), None),
        identity.identity(run),
    )
    certain, why = certainty(main, len(trials), simulated)
    sentence, in_capture = _sentences(results, captured, words)
    rows = trial_rows(trials, frame, main.metric if main else None, f"{anchor}-{run.name}", page is not None)
    if page is not None:
        title, metric = document.experiment["title"], METRICS[main.metric].title if main else ""
        about = TrialContext(anchor, title, identity.heading_suffix(run), metric, labels)
        write_trial_pages(about, rows, explained, output, page, tell)
    return Section(
        anchor=anchor,
        name=document.name,
        simulated=simulated,
        mark=identity.heading_suffix(run),
        run=run,
        document=document,
        sentence=("Simulated: " if simulated else "") + sentence,
        captured=in_capture,
        first=FirstScreen(
            certain=certain,
            why=why,
            bars=bars(main, words),
            further=list(further_answers(results, words)),
            invalid=invalid_sentence(invalid, len(trials), damaged),
            facts=list(provenance(document, attempts, hosts, facts)),
        ),
        time=time_table(summaries),
        words=words,
        answers=results,
        pictures=[
            _picture(caption, figure, output / f"{anchor}-{end}", end in of_study)
            for end, (caption, figure) in (_mark_simulated(drawings) if simulated else drawings).items()
        ],
        tables=[*([] if simulated else [*interactions(results), *rate_slopes(frame)]), *captured.tables],
        trials=len(trials),
        rows=rows,
        main_metric=METRICS[main.metric].title if main else "",
        invalid=invalid,
        identity=facts,
        hosts=hosts.model_dump(exclude_none=True) if hosts else {},
        notes=[*damaged, *suspicious_trials(verdicts), *notes(trials)],
        time_notes=_time_notes(by_cell, explained, results.get(TIME), labels),
        share_pct=100 * measuring_s / wall_s if wall_s else 0,
        overhead_s=(wall_s - measuring_s) / max(1, len(trials)),
    )


def _in_order(answer: Answer, names: list[str]) -> Answer:
    """Return the cells in the experiment's order; trials run in random order."""
    place = {name: index for index, name in enumerate(names)}
    first, *others = answer.cells
    return replace(answer, cells=[first, *sorted(others, key=lambda cell: place.get(cell.name, len(place)))])


def _captured(trials: Sequence[Trial], study: Study) -> Content:
    """Return the content of the run's first capture that is not blind."""
    for trial in trials:
        verdict, capture = completeness.read(trial), trial.capture
        if capture and verdict and verdict.verdict != "blind":
            try:
                return captures.describe(capture, study)
            except LabError as error:
                warn(f"{error.message}; the trial's capture is not reported")
    return Content()


def _draw_answers(
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


def _mark_simulated(drawings: Drawings) -> Drawings:
    """Mark the figures themselves, because they may be copied without the page."""
    for _, figure in drawings.values():
        label_figure(figure, "simulated")
    return {end: (f"Simulated. {caption}", figure) for end, (caption, figure) in drawings.items()}


def _ordered(summaries: Mapping[str, Summary], main: Answer | None) -> dict[str, Summary]:
    """Order cells as the picture of the first screen does; the null trial comes last."""
    order = {cell.name: index for index, cell in enumerate(main.cells)} if main else {}
    return {name: summaries[name] for name in sorted(summaries, key=lambda name: order.get(name, len(order)))}


def _names(main: Answer | None, words: Words) -> dict[str, str]:
    """Return the names of cells in words, in the order of the picture."""
    if main is None:
        return {}
    return {cell.name: cell_label(main, cell, words) for cell in main.cells}


def _time_notes(
    summaries: Mapping[str, Summary], explained: Mapping[Trial, Explained], time: Answer | None, names: Names
) -> list[str]:
    """Describe what each cell spends more than its baseline; of a single cell, where its time went."""
    if not summaries:
        return []
    if len(summaries) == 1:
        return [paragraph(*summaries.values())]
    causes = causes_of_cells(summaries, explained.items(), time)
    return wording.sentences({names.get(name, name): causes[name] for name in causes})


def _picture(caption: str, figure: Figure, stem: Path, of_study: bool) -> Picture:
    svg = save(figure, stem)
    uri = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
    return Picture(caption, stem.name, uri, of_study)


def _of_study(results: Mapping[str, Answer], document: Campaign, study: Study) -> set[str]:
    """Return the names of the drawings that show data of the 2019 study."""
    compared = {metric for metric in results if study.get(document.experiment["metrics"][metric])}
    return compared | (STUDY_CAPTURES if study else set())


def _sentences(results: Mapping[str, Answer], captured: Content, words: Words) -> tuple[str, list[str]]:
    """Return the run's answer, and what else its capture shows.

    The number of frames is no answer if the capture itself is described.
    """
    first = next(iter(results.values()), None)
    counts_frames = first is not None and first.metric == "frames"
    if captured.sentences and (first is None or counts_frames):
        answer, *further = captured.sentences
        return answer, further
    return sentences.sentence(first, words), captured.sentences


def interactions(results: Mapping[str, Answer]) -> list[TextTable]:
    """Return a table of how much of the first metric's change either of two factors adds alone."""
    first = next(iter(results.values()), None)
    interactions = interaction.interactions(first) if first else []
    rows = [
        [row.name, *map(format_interval, (row.added, *row.alone_pct.values(), row.combined_pct))]
        for row in interactions
    ]
    if first is None or not rows:
        return []
    title = "What two levels add to the baseline, and how much of it either adds alone"
    alone = [f"{factor} alone, %" for factor in interactions[0].alone_pct]
    unit = METRICS[first.metric].unit
    return [TextTable(title, ["cell", f"added, {unit}", *alone, "only combined, %"], rows)]


def rate_slopes(frame: pd.DataFrame) -> list[TextTable]:
    """Return a table of the slopes over 1/rate, if the experiment varies a rate."""
    rows = [
        [slope.name, ", ".join(map(_rate, slope.rates_mbit)), format_interval(slope.waited_mb)]
        for slope in slopes.rate_slopes(frame, frame.attrs["factors"])
    ]
    title = (
        "Slope of the time over 1/rate: the data that would pass the slowest link while nothing else happens"
    )
    return [TextTable(title, ["cells", "rates, Mbit/s", "MB"], rows)] if rows else []


def _rate(mbit: float) -> str:
    return format_number(mbit) if mbit else "no cap"
