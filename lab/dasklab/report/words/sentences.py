"""The numbers in sentences: each experiment's answer, and the verdict on each of the study's findings.

Only ratios to the own baseline are compared with the study's, never seconds of two machines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dasklab.model.forms.number_format import format_number
from dasklab.model.settings.impairments import UNITS
from dasklab.model.settings.metric import METRICS
from dasklab.report.words.levels import Words, cell_label, level_name
from dasklab.results.statistics import reasons
from dasklab.results.statistics.answer import Answer, Cell
from dasklab.results.statistics.interval import Interval, format_interval

LARGEST_RATIO = 100
MOST_LISTED = 4  # levels in a sentence; if more differ, it has the strongest only
Answers = Mapping[str, Mapping[str, Answer]]  # experiment -> metric -> its answer


@dataclass(frozen=True)
class FindingVerdict:
    """One finding of the study, and whether it holds here.

    ``state`` is one of: holds, does not hold, not shown, not measured.
    """

    claim: str
    state: str
    study_ratio: float
    ours: Interval | None
    why: str


def facts(value: Any) -> str:
    """Return nested facts of a host on one line: ``kernel 6.1, cpu: user 3.2, system 1.1``."""
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key}{':' if isinstance(inner, Mapping) else ''} {facts(inner)}" for key, inner in value.items()
        )
    if isinstance(value, float):
        return format_number(value)
    return ", ".join(map(facts, value)) if isinstance(value, list) else str(value)


def sentence(answer: Answer | None, words: Words) -> str:
    """Return the answer to the experiment's question, as far as this metric gives it.

    Args:
        answer: of one metric; None if there is no valid baseline.
        words: for the levels of the experiment's factors.
    """
    if answer is None:
        return "No answer: there is no valid baseline."
    return f"{_answer(answer, words)}{_separate(answer)}"


def _separate(answer: Answer) -> str:
    """Say that kinds of guest are not compared with each other, if the experiment has several."""
    if not any(cell.guests for cell in answer.cells):
        return ""
    return " Machines and containers are compared with a baseline of their own kind."


def _answer(answer: Answer, words: Words) -> str:
    metric, base = METRICS[answer.metric], answer.cells[0]
    if len(answer.cells) == 1:
        return f"The {metric.title} was {format_interval(base.median, metric.unit, metric.format)}."
    compared = [cell for cell in answer.cells if not cell.baseline]
    if answer.fit is not None and not answer.fit.df:
        return _without_intervals(answer, max(compared, key=_size), words)
    different = sorted((cell for cell in compared if cell.is_shown), key=_size, reverse=True)
    if not different:
        floor = (
            ""
            if math.isnan(answer.noise_floor)
            else f" ({middle_noise_floor(answer)} and less could be chance)"
        )
        factors = list(base.factors)
        level = f"no level of {factors[0]}" if len(factors) == 1 else "no level"
        return f"No difference shown: {level} changes the {metric.title} by more than the noise{floor}."
    text = _strongest(answer, different[0], words)
    if len(different) <= MOST_LISTED:
        own = answer.baseline(different[0])  # seconds of two workloads or engines are not put side by side
        alike = [cell for cell in different[1:] if cell.guests or answer.baseline(cell) is own]
        text += "".join(f"; {cell_label(answer, cell, words)}: {_change(answer, cell)}" for cell in alike)
    else:
        text += f"; {len(different) - 1} others differ, too"
    hidden = [cell_label(answer, cell, words) for cell in compared if not cell.is_shown]
    return text + (f"; no difference shown: {', '.join(hidden)}." if hidden else ".")


def _size(cell: Cell) -> float:
    return 0.0 if math.isnan(cell.difference.value) else abs(cell.difference.value)


def _without_intervals(answer: Answer, cell: Cell, words: Words) -> str:
    metric, own = METRICS[answer.metric], answer.baseline(cell)
    return (
        f"{_capital(cell_label(answer, cell, words))}: the {metric.title} was"
        f" {metric.quantity(cell.median.value)} instead of {metric.quantity(own.median.value)}, without"
        f" intervals: {reasons.blocks_are(answer.blocks)} too few to distinguish differences from noise."
    )


def _strongest(answer: Answer, cell: Cell, words: Words) -> str:
    metric = METRICS[answer.metric]
    subject = _capital(cell_label(answer, cell, words))
    return f"{subject}: the {metric.title} is {_change(answer, cell)}{_slopes(answer, metric.unit)}"


def _change(answer: Answer, cell: Cell) -> str:
    """Return both medians and the ratio: ``5.30 s instead of 0.440 s, x 12.0 (9.10 to 17.0)``.

    A ratio beyond all imagination is left out.
    """
    metric, own = METRICS[answer.metric], answer.baseline(cell)
    baseline = "" if own is answer.cells[0] else " at its own baseline"
    before = f"instead of {metric.quantity(own.median.value)}{baseline}"
    if not answer.scaled:
        return f"{format_interval(cell.median, metric.unit, metric.format)} {before}"
    ratio = "" if is_plain(cell.ratio) else f", x {format_interval(cell.ratio)}"
    return f"{metric.quantity(cell.median.value)} {before}{ratio}"


def is_plain(ratio: Interval) -> bool:
    """Whether nobody needs a ratio beside its two values: 0.04 ms and 11 ms differ by more than x 100."""
    return not 1 / LARGEST_RATIO < ratio.value < LARGEST_RATIO


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def contrasts(answer: Answer) -> list[str]:
    """Return what each level of one factor does at each level of the other: a sentence per level."""
    factors = list(answer.cells[0].factors)
    if len(factors) != 2 or not answer.scaled:
        return []
    sentences = []
    for fixed, varied in (pair for pair in (factors[::-1], factors) if pair[1] not in answer.kinds):
        first = answer.cells[0].factors[varied]
        ratios = {(cell.factors[fixed], cell.factors[varied]): cell.ratio for cell in answer.cells}
        for level in dict.fromkeys(key[1] for key in ratios if key[1] != first):
            parts = [
                f"x {format_interval(quotient(ratio, ratios[at, first]))} with {level_name(fixed, at)}"
                for (at, own), ratio in ratios.items()
                if own == level and (at, first) in ratios
            ]
            against = f"{level_name(varied, level)} against {level_name(varied, first)}"
            sentences.append(f"{against}: {', '.join(parts)}.")
    return sentences


def verdict(finding: Mapping[str, Any], answers: Answers) -> FindingVerdict:
    """Judge whether a finding of the study holds in our answers."""
    slower, than = (_find(finding[side], finding["metric"], answers) for side in ("slower", "than"))
    claim, study_ratio = finding["claim"], finding["study_ratio"]
    if slower is None or than is None:
        return FindingVerdict(claim, "not measured", study_ratio, None, "")
    ours = quotient(slower.ratio, than.ratio)
    if not (slower.is_shown or than.is_shown):
        state = "not shown"
    else:
        state = "holds" if ours.low > 1 else "does not hold" if ours.high < 1 else "not shown"
    return FindingVerdict(claim, state, study_ratio, ours, _measured_links(finding, answers))


def quotient(over: Interval, under: Interval) -> Interval:
    """Divide one ratio by another; the interval is as wide as the two allow."""
    low, high = (under.value if math.isnan(end) else end for end in (under.low, under.high))
    lowest, highest = (over.value if math.isnan(end) else end for end in (over.low, over.high))
    return Interval(over.value / under.value, lowest / high, highest / low)


def middle_noise_floor(answer: Answer) -> str:
    """Return the smallest difference that would be shown, for the middle one of the cells."""
    compared = sorted((cell for cell in answer.cells if not cell.baseline), key=lambda cell: cell.least)
    return reasons.noise_floor(answer, compared[len(compared) // 2])


def _slopes(answer: Answer, unit: str) -> str:
    parts = [
        f"each {_unit_of(factor)} adds {format_interval(slope, unit)}"
        if slope.excludes(0)
        else f"no slope over {factor}"
        for factor, slope in answer.slopes.items()
    ]
    return "".join(f"; {part}" for part in parts)


def _unit_of(factor: str) -> str:
    """Return ``ms of delay`` for ``delay_ms``; a factor without a unit is its own unit."""
    name, _, suffix = factor.rpartition("_")
    return f"{UNITS[suffix].sign} of {name}" if suffix in UNITS else factor.removesuffix("s")


def _find(side: Mapping[str, str], metric: str, answers: Answers) -> Cell | None:
    answer = answers.get(side["experiment"], {}).get(metric)
    return None if answer is None else answer.cell(side["cell"])


def _measured_links(finding: Mapping[str, Any], answers: Answers) -> str:
    """Return what probes measured in the slower cell, the first place to look for a reason."""
    parts = []
    for name in ("throughput_mbit", "rtt_ms"):
        cell, metric = _find(finding["slower"], name, answers), METRICS[name]
        if cell is not None:
            base = answers[finding["slower"]["experiment"]][name].baseline(cell)
            values = metric.quantity(cell.median.value)
            parts.append(f"{metric.title} was {values} (baseline: {metric.quantity(base.median.value)})")
    return f"In {finding['slower']['cell']} the {' and the '.join(parts)}." if parts else ""
