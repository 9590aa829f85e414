"""The first screen of a section: the answer, how certain it is, and the one picture that shows it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dasklab.model.files import Hosts
from dasklab.model.settings.metric import METRICS
from dasklab.report.words import sentences
from dasklab.report.words.levels import Words, cell_label
from dasklab.report.words.notes import (
    InvalidTrials,
    damaged_trials,
    invalid_trials,
    notes,
    rate_caps,
    suspicious_trials,
)
from dasklab.report.words.provenance import Fact, provenance
from dasklab.results.run import Run
from dasklab.results.statistics import reasons
from dasklab.results.statistics.answer import Answer, Cell
from dasklab.results.statistics.interval import format_interval
from dasklab.terminal import counted


@dataclass(frozen=True)
class Bar:
    """One cell in the picture; positions are in per cent of the longest bar or interval.

    ``baseline_pct`` is where the bar of its own baseline ends.
    """

    label: str
    value: str
    change: str
    baseline: bool
    is_shown: bool
    width_pct: float
    baseline_pct: float
    low_pct: float | None
    high_pct: float | None


@dataclass(frozen=True)
class Bars:
    """The picture: a bar for each cell of one metric."""

    title: str
    bars: list[Bar]


@dataclass(frozen=True)
class FirstScreen:
    """What stands above everything else, besides the question and the sentence that answers it."""

    certain: str
    why: str
    bars: Bars | None
    further: list[str]
    invalid: str
    facts: list[Fact]
    notes: list[str]


def first_screen(
    run: Run,
    answers: Mapping[str, Answer],
    words: Words,
    simulated: str | None,
    identity: Mapping[str, Any],
    hosts: Hosts | None,
) -> FirstScreen:
    """Return the first screen of a run's section.

    Args:
        simulated: where the costs of a simulated run come from; None for a measured run.
        identity: what the run was measured with, see ``results.statistics.identity``.
        hosts: facts of the hosts, if they were stored.
    """
    trials, main = run.trials, next(iter(answers.values()), None)
    verdicts, damaged = [trial.result for trial in trials], list(damaged_trials(run))
    certain, why = certainty(main, len(trials), simulated)
    return FirstScreen(
        certain=certain,
        why=why,
        bars=bars(main, words),
        further=list(further_answers(answers, words)),
        invalid=invalid_sentence(invalid_trials(verdicts), len(trials), damaged),
        facts=[
            *provenance(run.document, [trial.attempt for trial in trials], hosts, identity),
            *(("Rate caps", text) for text in rate_caps(trials)),
        ],
        notes=[*damaged, *suspicious_trials(verdicts), *notes(trials)],
    )


def bars(answer: Answer | None, words: Words) -> Bars | None:
    """Return the picture of one metric; None if there is nothing to compare."""
    if answer is None or len(answer.cells) < 2:
        return None
    ends = [cell.median.value if math.isnan(cell.median.high) else cell.median.high for cell in answer.cells]
    longest = max(max(ends), max(cell.median.value for cell in answer.cells))
    if longest <= 0:
        return None
    metric = METRICS[answer.metric]
    rows = [_bar(answer, cell, longest, words) for cell in answer.cells]
    return Bars(metric.title[:1].upper() + metric.title[1:], rows)


def _bar(answer: Answer, cell: Cell, longest: float, words: Words) -> Bar:
    metric = METRICS[answer.metric]

    def position(value: float) -> float | None:
        return None if math.isnan(value) else 100 * min(longest, max(0.0, value)) / longest

    return Bar(
        label=cell_label(answer, cell, words),
        value=format_interval(cell.median, metric.unit, metric.format),
        change=_change(answer, cell),
        baseline=cell.baseline,
        is_shown=cell.is_shown,
        width_pct=position(cell.median.value) or 0.0,
        baseline_pct=position(answer.baseline(cell).median.value) or 0.0,
        low_pct=position(cell.median.low),
        high_pct=position(cell.median.high),
    )


def _change(answer: Answer, cell: Cell) -> str:
    if cell.baseline:
        return "baseline"
    if not cell.is_shown:
        return "no difference shown"
    if answer.scaled:
        return f"x {format_interval(cell.ratio)}"
    return format_interval(cell.difference, METRICS[answer.metric].unit, METRICS[answer.metric].format)


def further_answers(answers: Mapping[str, Answer], words: Words) -> Iterator[str]:
    """Yield the answers of the other metrics, a sentence each."""
    yield from (sentences.sentence(answer, words) for answer in list(answers.values())[1:])


def certainty(answer: Answer | None, number: int, simulated: str | None) -> tuple[str, str]:
    """Return how certain the answer is, in a word or two, and why.

    Args:
        answer: of the first metric; None if there is no valid baseline.
        number: of all finished trials.
        simulated: where the costs of a simulated run come from; None for a measured run.
    """
    if answer is None:
        return "No answer", "Without a valid trial of the baseline nothing can be compared."
    trials = counted(number, "trial")
    if simulated:
        return "Predicted", (
            f"{trials} simulated with the costs measured in {simulated}, not measured. Intervals cover the"
            " seeds and the prediction error found in validation."
        )
    if len(answer.cells) == 1:
        return "Described, not compared", f"{trials} of one setting; nothing is compared."
    if answer.fit is not None and not answer.fit.df:
        return "Not certain", (
            f"{reasons.blocks_are(answer.blocks).capitalize()} too few to distinguish differences from noise."
        )
    why = f"{trials} in {counted(answer.blocks, 'block')}, in random order. {_null_trial(answer)}".rstrip()
    if any(cell.is_shown for cell in answer.cells):
        return "Certain", f"Chance shows a difference this large in fewer than one experiment of 20. {why}"
    if math.isnan(answer.noise_floor):
        return "Not certain", why
    floor = sentences.middle_noise_floor(answer)
    return f"Only differences above {floor} could have been seen", why


def _null_trial(answer: Answer) -> str:
    if answer.null is None:
        return ""
    metric = METRICS[answer.metric]
    return (
        "The null trial, an exact copy of the baseline, differs from it by"
        f" {format_interval(answer.null, metric.unit, metric.format)}."
    )


def invalid_sentence(invalid: Sequence[InvalidTrials], trials: int, damaged: Sequence[str]) -> str:
    """Return what is invalid, in words."""
    number = sum(len(group.trials) for group in invalid)
    parts = []
    if number:
        causes = "; ".join(f"{len(group.trials)} x {_cause(group)}" for group in invalid)
        parts.append(f"{number} of {counted(trials, 'trial')} left the statistics: {causes}.")
    if damaged:
        parts.append(f"{counted(len(damaged), 'trial')} could not be read because of damaged files.")
    if not parts:
        return "The only trial is valid." if trials == 1 else f"All {trials} trials are valid."
    return " ".join(parts)


def _cause(group: InvalidTrials) -> str:
    return f"{group.status}: {', '.join(group.reasons)}" if group.reasons else group.status
