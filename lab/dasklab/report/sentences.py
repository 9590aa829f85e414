"""The numbers in sentences: each experiment's answer, and the verdict on each of the study's findings.

Only ratios to the own baseline are compared with the study's, never seconds of two machines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dasklab.model.impairments import UNITS
from dasklab.model.metric import METRICS
from dasklab.model.number_format import format_number
from dasklab.results.statistics import reasons
from dasklab.results.statistics.answer import Answer, Cell
from dasklab.results.statistics.interval import Interval, format_interval

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


def sentence(answer: Answer | None) -> str:
    """Return the answer to the experiment's question, as far as this metric gives it."""
    if answer is None:
        return "No answer: there is no valid baseline."
    metric, base = METRICS[answer.metric], answer.cells[0]
    if len(answer.cells) == 1:
        return f"The {metric.title} was {format_interval(base.median, metric.unit, metric.format)}."
    compared = [cell for cell in answer.cells if not cell.baseline]
    if answer.fit is not None and not answer.fit.df:
        return _without_intervals(answer, max(compared, key=lambda cell: abs(cell.difference.value)))
    different = [cell for cell in compared if cell.is_shown]
    if not different:
        floor = (
            "" if math.isnan(answer.noise_floor) else f" ({_noise_floor(answer)} and less could be chance)"
        )
        return f"No difference shown: no level changes the {metric.title} by more than the noise{floor}."
    text = _strongest(answer, max(different, key=lambda cell: abs(cell.difference.value)))
    others = [_apart(cell, base) for cell in compared if not cell.is_shown]
    return text + (f"; no difference shown with {', '.join(others)}." if others else ".")


def _without_intervals(answer: Answer, cell: Cell) -> str:
    metric, own = METRICS[answer.metric], answer.baseline(cell)
    before, after = (
        format_interval(median, metric.unit, metric.format) for median in (own.median, cell.median)
    )
    return (
        f"{reasons.blocks_are(answer.blocks).capitalize()} too few to distinguish differences from noise,"
        f" so without intervals: {before} at the baseline, {after} with {_apart(cell, answer.cells[0])}."
    )


def _strongest(answer: Answer, cell: Cell) -> str:
    metric, base, own = METRICS[answer.metric], answer.cells[0], answer.baseline(cell)
    baseline = "the baseline" if own is base else "its own baseline"
    if answer.scaled:
        amount = f"x {format_interval(cell.ratio)} compared with {baseline}"
    else:
        median = format_interval(cell.median, metric.unit, metric.format)
        amount = f"{median}, at {baseline} {metric.format(own.median.value)}"
    return f"With {_apart(cell, base)} the {metric.title} is {amount}{_slopes(answer, metric.unit)}"


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


def level_name(factor: str, level: object) -> str:
    """Return a level with its unit: ``200 ms``, ``5 %``, ``no cap``, ``E1000``."""
    suffix = factor.rpartition("_")[2]
    if suffix == "mbit" and not level:
        return "no cap"
    return f"{level} {UNITS[suffix].sign}" if suffix in UNITS else str(level)


def _noise_floor(answer: Answer) -> str:
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


def _apart(cell: Cell, base: Cell) -> str:
    """Return what sets a cell apart: ``200 ms of delay``, ``nic E1000 and bridge flooding``."""
    parts = []
    for factor, level in cell.factors.items():
        if level != base.factors[factor]:
            name, _, suffix = factor.rpartition("_")
            words = level_name(factor, level)
            has_unit = suffix in UNITS and words != "no cap"
            parts.append(f"{words} of {name}" if has_unit else f"{factor} {words}")
    return " and ".join(parts)


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
            values = f"{metric.format(cell.median.value)} {metric.unit}"
            parts.append(f"{metric.title} was {values} (baseline: {metric.format(base.median.value)})")
    return f"In {finding['slower']['cell']} the {' and the '.join(parts)}." if parts else ""
