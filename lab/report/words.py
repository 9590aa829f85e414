"""What the numbers say, in sentences: each experiment's answer, the verdict on each of the study's findings.

Only ratios to each one's own baseline are set beside the study's, never the seconds of two machines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.measures import Answer, Cell, Interval, interval, number

NAMES = {
    "compute_s": ("time to compute", "s"),
    "us_per_task": ("time per task", "µs"),
    "transfer_mb": ("data moved per run", "MB"),
    "rtt_ms": ("RTT", "ms"),
    "throughput_mbit": ("TCP throughput", "Mbit/s"),
    "udp_mbit": ("UDP throughput", "Mbit/s"),
    "retransmits": ("TCP retransmissions per probe", ""),
    "udp_lost_pct": ("UDP loss", "%"),
    "frames": ("frames captured", ""),
    "node_busy_pct": ("hypervisor's CPU in use", "%"),
}
Answers = Mapping[str, Mapping[str, Answer]]  # experiment -> metric -> its answer


@dataclass(frozen=True)
class Verdict:
    """One finding of the study, and what was found here."""

    claim: str
    state: str  # holds, does not hold, not shown, not measured
    study_ratio: float
    ours: Interval | None
    why: str


def heading(metric: str) -> str:
    """A metric's name as the first words of a line, with its unit."""
    name, unit = NAMES[metric]
    return f"{name[0].upper()}{name[1:]}{', ' if unit else ''}{unit}"


def facts(found: Any) -> str:
    """Nested facts of a machine on one line: ``kernel 6.1, cpu: user 3.2, system 1.1``."""
    if isinstance(found, Mapping):
        return ", ".join(
            f"{key}{':' if isinstance(value, Mapping) else ''} {facts(value)}" for key, value in found.items()
        )
    if isinstance(found, float):
        return number(found)
    return ", ".join(map(facts, found)) if isinstance(found, list) else str(found)


def sentence(answer: Answer | None) -> str:
    """The answer to the experiment's question as far as this metric gives it."""
    if answer is None:
        return "No answer: there is no valid baseline."
    what, unit = NAMES[answer.metric]
    base = answer.cells[0]
    if len(answer.cells) == 1:
        return f"The {what} was {interval(base.median, unit)}."
    shown = [cell for cell in answer.cells[1:] if cell.shown]
    if not shown:
        noise = "" if math.isnan(answer.floor) else f" (noise floor {number(answer.floor)} {unit})"
        return f"No difference shown: no level changes the {what} by more than the noise{noise}."
    strongest = max(shown, key=lambda cell: abs(cell.difference.value))
    hidden = [_level(cell) for cell in answer.cells[1:] if not cell.shown]
    if math.isfinite(strongest.ratio.value):
        amount = f"{interval(strongest.ratio)} times the baseline's"
    else:
        amount = f"{interval(strongest.median, unit)}, the baseline's {number(base.median.value)}"
    text = f"With {_level(strongest)} the {what} is {amount}{_slopes(answer, unit)}"
    return text + (f"; no difference shown with {', '.join(hidden)}." if hidden else ".")


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
    return Interval(over.value / under.value, over.low / high, over.high / low)


def _slopes(answer: Answer, unit: str) -> str:
    parts = [
        f"each {_unit_of(factor)} adds {interval(slope, unit)}"
        if slope.excludes(0)
        else f"no slope over {factor}"
        for factor, slope in answer.slopes.items()
    ]
    return "".join(f"; {part}" for part in parts)


def _unit_of(factor: str) -> str:
    """``delay_ms`` -> ``ms of delay``; a factor without a unit is its own."""
    name, _, unit = factor.rpartition("_")
    units = {"ms": "ms", "pct": "%", "mbit": "Mbit/s"}
    return f"{units[unit]} of {name}" if unit in units else factor.removesuffix("s")


def _level(cell: Cell) -> str:
    """``200 ms of delay``, ``nic E1000``, ``bridge flooding and 100 Mbit/s of rate``."""
    named = ((factor, str(level), _unit_of(factor)) for factor, level in cell.factors.items())
    return " and ".join(
        f"{lev} {unit}" if " of " in unit else f"{factor} {lev}" for factor, lev, unit in named
    )


def _find(side: Mapping[str, str], metric: str, answers: Answers) -> Cell | None:
    answer = answers.get(side["experiment"], {}).get(metric)
    return None if answer is None else answer.cell(side["cell"])


def _meanwhile(finding: Mapping[str, Any], answers: Answers) -> str:
    """What the links themselves delivered in the slower cell: the first place to look for a reason."""
    parts = []
    for metric in ("throughput_mbit", "rtt_ms"):
        cell = _find(finding["slower"], metric, answers)
        if cell is not None:
            parts.append(f"{NAMES[metric][0]} was {number(cell.ratio.value)} times the baseline's")
    return f"In {finding['slower']['cell']} the {' and the '.join(parts)}." if parts else ""
