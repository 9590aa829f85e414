"""One run as a section of the report: its answer, and its parts, each from a module of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

from dasklab.breakdown.show.explain import Explained, explain_trials
from dasklab.errors import LabError
from dasklab.model.experiments.cells import cell_names
from dasklab.model.files import Campaign
from dasklab.model.settings.metric import METRICS
from dasklab.notices import warn
from dasklab.report.drawings import captures
from dasklab.report.drawings.captures.content import Content, TextTable
from dasklab.report.pages.first_screen import FirstScreen, first_screen
from dasklab.report.pages.pictures import Picture, Study, draw_answers, drawn_of_study, save_pictures
from dasklab.report.pages.tables import interactions, rate_slopes
from dasklab.report.pages.time_screen import TimeScreen, time_screen
from dasklab.report.pages.trials_screen import TrialsScreen, trials_screen
from dasklab.report.pages.twin_screen import TwinScreen, twin_screen
from dasklab.report.trials.trial_pages import TrialContext, write_trial_pages
from dasklab.report.trials.trial_rows import trial_rows
from dasklab.report.words import sentences
from dasklab.report.words.levels import Words, cell_label, level_words
from dasklab.results.run import Run, Trial
from dasklab.results.statistics import identity
from dasklab.results.statistics.answer import Answer
from dasklab.results.statistics.answers import answers
from dasklab.results.table import table
from dasklab.results.validity import completeness


@dataclass(frozen=True)
class Section:
    """The content of a section.

    Attributes:
        anchor: the name on the page, and the start of the names of the figures' files.
        simulated: where the costs of a simulated run come from.
        captured: sentences on what the capture shows.
        twin: of a run that replays a record.
    """

    anchor: str
    run: Run
    simulated: str | None
    mark: str
    sentence: str
    captured: list[str]
    first: FirstScreen
    twin: TwinScreen | None
    time: TimeScreen
    words: Words
    answers: dict[str, Answer]
    pictures: list[Picture]
    tables: list[TextTable]
    trials: TrialsScreen

    @property
    def document(self) -> Campaign:
        """The experiment as the run stored it."""
        return self.run.document

    @property
    def when(self) -> str:
        """When the run began, in UTC, from its folder's name; else that name."""
        match = re.fullmatch(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z", self.run.name)
        return "{}-{}-{} {}:{}:{}".format(*match.groups()) if match else self.run.name

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
    run: Run,
    study: Study,
    output: Path,
    page: Path | None,
    anchor: str,
    progress: Callable[[str], None],
    record: Trial | None,
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
        raise LabError(f"{run}: no trial is finished and complete", f"dasklab run {run} continues it")
    simulated, facts = identity.simulated_from(run), identity.identity(run)
    study = {} if simulated else study
    hosts = next((trial.hosts for trial in trials if trial.hosts), None)
    by_metric = answers(frame, run.metrics)
    names = cell_names(run.experiment)
    ordered = sorted(by_metric, key=list(METRICS).index)  # time comes first
    results = {metric: _in_order(answer, names) for metric in ordered if (answer := by_metric[metric])}
    main = next(iter(results.values()), None)
    words = level_words(document.experiment.get("factors", {}))
    labels = {cell.name: cell_label(main, cell, words) for cell in main.cells} if main else {}
    captured = _captured(trials, study)
    explained = _explain(run, page is None, progress)
    sentence, in_capture = _sentences(results, captured, words)
    metric, mark = METRICS[main.metric].title if main else "", identity.heading_suffix(run)
    rows = trial_rows(trials, frame, main.metric if main else None, f"{anchor}-{run.name}", page is not None)
    if page is not None:
        context = TrialContext(anchor, document.experiment["title"], mark, metric, labels)
        write_trial_pages(context, rows, explained, output, page, progress)
    drawings = {**draw_answers(results, frame, document, study, words), **captured.figures}
    of_study = drawn_of_study(results, document, study)
    return Section(
        anchor=anchor,
        run=run,
        simulated=simulated,
        mark=mark,
        sentence=("Simulated: " if simulated else "") + sentence,
        captured=in_capture,
        first=first_screen(run, results, words, simulated, facts, hosts),
        twin=twin_screen(run, record, progress),
        time=time_screen(run, explained, results, labels),
        words=words,
        answers=results,
        pictures=list(save_pictures(drawings, output / anchor, of_study, bool(simulated))),
        tables=[*([] if simulated else [*interactions(results), *rate_slopes(frame)]), *captured.tables],
        trials=trials_screen(run, rows, metric, facts, hosts),
    )


def _in_order(answer: Answer, names: list[str]) -> Answer:
    """Return the cells in the experiment's order; trials run in random order."""
    place = {name: index for index, name in enumerate(names)}
    first, *others = answer.cells
    return replace(answer, cells=[first, *sorted(others, key=lambda cell: place.get(cell.name, len(place)))])


def _explain(run: Run, valid_only: bool, progress: Callable[[str], None]) -> dict[Trial, Explained]:
    explained = {}
    for trial, breakdown in explain_trials(run, valid_only=valid_only):
        explained[trial] = breakdown
        progress(f"{run.document.name}: explained trial {trial.name}")
    return explained


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
