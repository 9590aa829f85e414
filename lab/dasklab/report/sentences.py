"""What the numbers say, in sentences: each experiment's answer, the verdict on each of the study's findings.

Only ratios to each one's own baseline are set beside the study's, never the seconds of two machines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dasklab.model.metric import METRICS
from dasklab.model.number_format import format_number
from dasklab.results.statistics import reasons
from dasklab.results.statistics.answer import Answer, Cell
from dasklab.results.statistics.interval import Interval, format_interval

UNITS = {"ms": "ms", "pct": "%", "mbit": "Mbit/s"}  # by the ending of a factor's name
Answers = Mapping[str, Mapping[str, Answer]]  # experiment -> metric -> its answer


@dataclass(frozen=True)
class Verdict:
    """One finding of the study, and what was found here."""

    claim: str
    state: str  # holds, does not hold, not shown, not measured
    study_ratio: float
    ours: Interval | None
    why: str


def facts(found: Any) -> str:
    """Nested facts of a machine on one line: ``kernel 6.1, cpu: user 3.2, system 1.1``."""
    if isinstance(found, Mapping):
        return ", ".join(
            f"{key}{':' if isinstance(value, Mapping) else ''} {facts(value)}" for key, value in found.items()
        )
    if isinstance(found, float):
        return format_number(found)
    return ", ".join(map(facts, found)) if isinstance(found, list) else str(found)


def sentence(answer: Answer | None) -> str:
    """The answer to the experiment's question as far as this metric gives it."""
    if answer is None:
        return "No answer: there is no valid baseline."
    what, unit = METRICS[answer.metric].title, METRICS[answer.metric].unit
    base = answer.cells[0]
    if len(answer.cells) == 1:
        return f"The {what} was {format_interval(base.median, unit)}."
    tested = [cell for cell in answer.cells if not cell.baseline]
    if answer.fit is not None and not answer.fit.df:
        farthest = max(tested, key=lambda cell: abs(cell.difference.value))
        own = answer.baseline(farthest)
        return (
            f"{reasons.blocks_are(answer.blocks).capitalize()} too few to tell noise from differences,"
            f" so without intervals: {format_interval(own.median, unit)} at the baseline,"
            f" {format_interval(farthest.median, unit)} with {_cell(farthest, base)}."
        )
    shown = [cell for cell in tested if cell.shown]
    if not shown:
        noise = "" if math.isnan(answer.noise_floor) else f" ({_floor(answer)} and less could be chance)"
        return f"No difference shown: no level changes the {what} by more than the noise{noise}."
    strongest = max(shown, key=lambda cell: abs(cell.difference.value))
    own = answer.baseline(strongest)
    whose = "the baseline's" if own is base else "its own baseline's"
    hidden = [_cell(cell, base) for cell in tested if not cell.shown]
    if answer.scaled:
        amount = f"{format_interval(strongest.ratio)} times {whose}"
    else:
        amount = f"{format_interval(strongest.median, unit)}, {whose} {format_number(own.median.value)}"
    text = f"With {_cell(strongest, base)} the {what} is {amount}{_slopes(answer, unit)}"
    return text + (f"; no difference shown with {', '.join(hidden)}." if hidden else ".")


def contrasts(answer: Answer) -> list[str]:
    """With two factors: what each level of the one does at each level of the other, a sentence per level."""
    factors = list(answer.cells[0].factors)
    if len(factors) != 2 or not answer.scaled:
        return []
    sentences = []
    for held, varied in (pair for pair in (factors[::-1], factors) if pair[1] not in answer.kinds):
        first = answer.cells[0].factors[varied]
        rows = {(cell.factors[held], cell.factors[varied]): cell.ratio for cell in answer.cells}
        for level in dict.fromkeys(key[1] for key in rows if key[1] != first):
            parts = [
                f"{format_interval(quotient(found, rows[at, first]))} times with {level_name(held, at)}"
                for (at, here), found in rows.items()
                if here == level and (at, first) in rows
            ]
            against = f"{level_name(varied, level)} against {level_name(varied, first)}"
            sentences.append(f"{against}: {', '.join(parts)}.")
    return sentences


def verdict(finding: Mapping[str, Any], answers: Answers) -> Verdict:
    """Does a finding of the study hold in our answers?"""
    slower, than = (_find(finding[side], finding["metric"], answers) for side in ("slower", "than"))
    if slower is None or than is None:
        return Verdict(finding["claim"], "not measured", finding["study_ratio"], None, "")
    ours = quotient(slower.ratio, than.ratio)
    if not (slower.shown or than.shown):
        state = "not shown"
    else:
        state = "holds" if ours.low > 1 else "does not hold" if ours.high < 1 else "not shown"
    return Verdict(finding["claim"], state, finding["study_ratio"], ours, _meanwhile(finding, answers))


def quotient(over: Interval, under: Interval) -> Interval:
    """One ratio over another, the interval as wide as the two allow."""
    low, high = (under.value if math.isnan(end) else end for end in (under.low, under.high))
    lowest, highest = (over.value if math.isnan(end) else end for end in (over.low, over.high))
    return Interval(over.value / under.value, lowest / high, highest / low)


def _floor(answer: Answer) -> str:
    """The smallest difference that would be shown: of a middling cell."""
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
    """``delay_ms`` -> ``ms of delay``; a factor without a unit is its own."""
    name, _, unit = factor.rpartition("_")
    return f"{UNITS[unit]} of {name}" if unit in UNITS else factor.removesuffix("s")


def level_name(factor: str, level: object) -> str:
    """``200 ms``, ``5 %``, ``no cap``, ``E1000``: a level with its unit."""
    unit = UNITS.get(factor.rpartition("_")[2])
    if factor.endswith("_mbit") and not level:
        return "no cap"
    return f"{level} {unit}" if unit else str(level)


def _cell(cell: Cell, base: Cell) -> str:
    """What sets a cell apart from the baseline: ``200 ms of delay``, ``nic E1000 and bridge flooding``."""
    apart = [(factor, level) for factor, level in cell.factors.items() if level != base.factors[factor]]
    named = []
    for factor, level in apart:
        name, _, unit = factor.rpartition("_")
        words = level_name(factor, level)
        named.append(f"{words} of {name}" if unit in UNITS and words != "no cap" else f"{factor} {words}")
    return " and ".join(named)


def _find(side: Mapping[str, str], metric: str, answers: Answers) -> Cell | None:
    answer = answers.get(side["experiment"], {}).get(metric)
    return None if answer is None else answer.cell(side["cell"])


def _meanwhile(finding: Mapping[str, Any], answers: Answers) -> str:
    """What the links themselves delivered in the slower cell: the first place to look for a reason."""
    parts = []
    for metric in ("throughput_mbit", "rtt_ms"):
        cell = _find(finding["slower"], metric, answers)
        if cell is not None:
            parts.append(
                f"{METRICS[metric].title} was {format_number(cell.ratio.value)} times the baseline's"
            )
    return f"In {finding['slower']['cell']} the {' and the '.join(parts)}." if parts else ""
