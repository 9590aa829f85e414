"""One run as a section of the report: its answer, its figures, what left the statistics."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dasklab.breakdown import pictures, wording
from dasklab.breakdown.explain import cells
from dasklab.breakdown.summary import Difference
from dasklab.errors import LabError
from dasklab.model.files import Attempt, Campaign, Configured, Hosts, Result
from dasklab.model.metric import METRICS
from dasklab.model.number_format import format_number
from dasklab.model.trial import Trial
from dasklab.notices import warn
from dasklab.plotting import mark, save
from dasklab.report import captures, figures, sentences
from dasklab.report.captures.content import Content, TextTable
from dasklab.results.statistics import identity, interaction, slopes
from dasklab.results.statistics.answer import Answer
from dasklab.results.statistics.answers import answers
from dasklab.results.statistics.interval import format_interval
from dasklab.results.storage import recording, store
from dasklab.results.storage.damage import damage
from dasklab.results.storage.table import table
from dasklab.results.validity import completeness

Study = Mapping[str, Any]  # the study's figures, by name


@dataclass(frozen=True)
class Picture:
    """A figure: what it shows in words, its file's stem, and the SVG as a data URI."""

    caption: str
    stem: str
    uri: str


@dataclass(frozen=True)
class Invalid:
    """Trials that left the statistics for the same reasons."""

    trials: list[str]
    status: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """One run, ready to be read; ``simulated``: whose costs it was simulated with, None of a measured one."""

    name: str
    simulated: str | None
    mark: str
    run: Path
    document: Campaign
    sentence: str
    answers: dict[str, Answer]
    pictures: list[Picture]
    tables: list[TextTable]
    trials: int
    invalid: list[Invalid]
    identity: dict[str, Any]
    machines: dict[str, Any]
    notes: list[str]
    share_pct: float
    overhead_s: float

    @property
    def anchor(self) -> str:
        """Its name on the page and in the names of its figures' files."""
        return _anchor(self.name, self.simulated)


def _anchor(name: str, simulated: str | None) -> str:
    return f"simulated-{name}" if simulated else name


def section(run: Path, study: Study, output: Path) -> Section:
    """Gather what is told of a run; its figures are written to ``output``.

    What was simulated is told as such, and never beside the study, which was measured.
    """
    document, frame, trials = store.read_run(run), table(run), store.finished(run)
    if not trials:
        raise LabError(
            f"{run}: none of its trials is finished and whole", f"dasklab run {run} goes on with it"
        )
    simulated = identity.simulated_from(run)
    study = {} if simulated else study
    every = answers(frame, list(document.experiment["metrics"]))
    told = {metric: every[metric] for metric in sorted(every, key=list(METRICS).index)}  # time comes first
    found = {metric: each for metric, each in told.items() if each}
    captured = _captured(trials, study)
    drawn = {**_drawn(found, frame, document, study), **_accounts(run), **captured.figures}
    measuring_s, wall_s = _spent_s([store.need(Attempt, trial) for trial in trials])
    results = [store.need(Result, trial) for trial in trials]
    stem = _anchor(document.name, simulated)
    return Section(
        name=document.name,
        simulated=simulated,
        mark=identity.heading_suffix(run),
        run=run,
        document=document,
        sentence=("Simulated: " if simulated else "") + _sentence(found, captured),
        answers=found,
        pictures=[
            _picture(caption, figure, output / f"{stem}-{what}")
            for what, (caption, figure) in (_marked(drawn) if simulated else drawn).items()
        ],
        tables=[*([] if simulated else [*_together(found), *_slopes(frame)]), *captured.tables],
        trials=len(trials),
        invalid=_invalid(results),
        identity=identity.identity(run),
        machines=_machines(trials),
        notes=[*_damaged(run), *_notes(trials)],
        share_pct=100 * measuring_s / wall_s if wall_s else 0,
        overhead_s=(wall_s - measuring_s) / max(1, len(trials)),
    )


def _captured(trials: list[Path], study: Study) -> Content:
    """What the first capture of the run holds that was given what there was to hold."""
    for trial in trials:
        verdict, found = completeness.read(trial), recording.read(trial)
        if found and verdict and verdict.verdict != "blind":
            try:
                return captures.describe(found, study)
            except LabError as error:
                warn(f"{error.message}; the trial's capture is not reported")
    return Content()


def _drawn(
    answers: Mapping[str, Answer], frame: pd.DataFrame, document: Campaign, study: Study
) -> dict[str, tuple[str, Figure]]:
    """A figure with its caption for each metric that has cells to compare."""
    found = {}
    for metric, one in answers.items():
        theirs = study.get(document.experiment["metrics"][metric])
        caption = sentences.sentence(one)
        if theirs:
            caption += f" Grey: the study's “{theirs['title']}”, {theirs['statistic']}."
        if len(one.cells) > 1:
            found[metric] = (caption, figures.draw(one, frame, theirs))
    return found


def _marked(drawn: Mapping[str, tuple[str, Figure]]) -> dict[str, tuple[str, Figure]]:
    """The same figures, each of which says that it was simulated, wherever it is taken to."""
    for _, figure in drawn.values():
        mark(figure, "simulated")
    return {what: (f"Simulated. {caption}", figure) for what, (caption, figure) in drawn.items()}


def _accounts(run: Path) -> dict[str, tuple[str, Figure]]:
    """Where the time of each cell went, and in words what each spends more than the baseline."""
    found = cells(run)
    if not found:
        return {}
    (_, base), *others = found.items()
    told = [f"{name}: {wording.difference(Difference(base, other))}" for name, other in others]
    caption = " ".join(("Where the time went.", *(told or [wording.paragraph(base)])))
    return {"account": (caption, pictures.levels(found))}


def _picture(caption: str, figure: Figure, stem: Path) -> Picture:
    svg = save(figure, stem)
    return Picture(caption, stem.name, "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode())


def _sentence(answers: Mapping[str, Answer], captured: Content) -> str:
    """The run's answer; how many frames there are answers nothing where the capture itself is told."""
    first = next(iter(answers.values()), None)
    counted = first is not None and first.metric == "frames"
    measured = [] if counted and captured.sentences else [sentences.sentence(first)]
    return " ".join(measured + captured.sentences)


def _together(answers: Mapping[str, Answer]) -> list[TextTable]:
    """Of two factors: how much of what a cell adds to the first metric either level adds by itself."""
    first = next(iter(answers.values()), None)
    found = interaction.interactions(first) if first else []
    rows = [
        [each.name, *map(format_interval, (each.added, *each.alone_pct.values(), each.combined_pct))]
        for each in found
    ]
    if first is None or not rows:
        return []
    title = "What two levels add to the baseline together, and how much of it either adds by itself"
    heads = [f"added, {METRICS[first.metric].unit}", *(f"{factor} alone, %" for factor in found[0].alone_pct)]
    return [TextTable(title, ["cell", *heads, "only both, %"], rows)]


def _slopes(frame: pd.DataFrame) -> list[TextTable]:
    """What each of the other cells waits for as the links get slower, where their rate is varied."""
    rows = [
        [each.name, ", ".join(map(_rate, each.rates_mbit)), format_interval(each.waited_mb)]
        for each in slopes.rate_slopes(frame, frame.attrs["factors"])
    ]
    title = "Slope of the time over 1/rate: as if so much had to pass the slowest link while all else waits"
    return [TextTable(title, ["cells", "rates, Mbit/s", "MB"], rows)] if rows else []


def _rate(mbit: float) -> str:
    return format_number(mbit) if mbit else "no cap"


def _spent_s(attempts: list[Attempt]) -> tuple[float, float]:
    """Seconds spent on measuring, and in all."""
    return sum(a.measuring_s for a in attempts), sum(a.wall_s for a in attempts)


def _invalid(results: list[Result]) -> list[Invalid]:
    """One cause is told once, with all the trials that it took."""
    found: dict[tuple[str, ...], Invalid] = {}
    for result in results:
        if result.status != "ok":
            cause = (result.status, *result.reasons)
            found.setdefault(cause, Invalid([], result.status, result.reasons)).trials.append(result.trial)
    return list(found.values())


def _damaged(run: Path) -> Iterator[str]:
    """Which trials were left out because a file of theirs is damaged or missing."""
    for directory in store.having(run, Attempt, Result):
        if why := damage(directory):
            yield f"{directory.name} was left out, its files are damaged: {why}."


def _notes(trials: list[Path]) -> Iterator[str]:
    """What the reader must know: of captures that miss something, and of how links were impaired."""
    missing: dict[str, list[str]] = {}
    for trial in trials:
        missing.setdefault(completeness.line(completeness.read(trial)), []).append(trial.name)
    yield from (f"{', '.join(names)}: {line}." for line, names in missing.items() if line)
    asked = {trial: store.need(Trial, trial) for trial in trials}
    configured = {trial: store.read(Configured, trial) or Configured() for trial in trials}
    methods = {c.rate_method for c in configured.values() if c.rate_method}
    if any(nic.rate_mbit for trial in asked.values() for nic in trial.nics.values()) and methods:
        yield f"What a capped guest sends was limited by: {', '.join(sorted(methods))}."
    links = [each for c in configured.values() for host in c.hosts.values() for each in host.link]
    if any(each.policer and each.by == "tbf" for each in links):
        yield "A link's policer was a bucket with room for one super-frame: its kernel has no act_police."
    lossy = [
        (c, host) for t, c in configured.items() for host, link in asked[t].links.items() if link.loss_pct
    ]
    if any(host in c.hosts and c.hosts[host].offloads.get("tso") for c, host in lossy):
        yield "Loss acted on super-packets: segmentation offload was on, one drop took up to 64 kB."


def _machines(trials: list[Path]) -> dict[str, Any]:
    """hosts.json of the first trial that has one."""
    documents = (store.read(Hosts, trial) for trial in trials)
    return next((document.model_dump(exclude_none=True) for document in documents if document), {})
