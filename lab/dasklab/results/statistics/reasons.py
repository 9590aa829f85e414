"""Why a difference is not shown, in words, and how many blocks would show a difference of x 1.3."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from dasklab.model.forms.number_format import format_number
from dasklab.model.settings.metric import METRICS
from dasklab.results.statistics.answer import Answer, Cell
from dasklab.results.statistics.inference import ALPHA, quantile_of_one
from dasklab.results.statistics.interval import format_interval

WORTH_SHOWING = 1.3  # blocks are recommended until a difference of this factor would be shown
FIRST_BLOCKS, MOST_BLOCKS = 4, 20
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def not_shown(answer: Answer) -> list[str]:
    """Return a line for each reason why differences are not shown, with the cells concerned."""
    cells: dict[str, list[str]] = {}
    for cell in answer.cells:
        if not cell.baseline and not cell.is_shown:
            cells.setdefault(why(answer, cell), []).append(cell.name)
    return [f"Not shown ({', '.join(names)}): {reason}." for reason, names in cells.items()]


def verdict(answer: Answer | None, name: str) -> str | None:
    """Return the verdict on one cell's difference in a sentence; None if there is no such cell to compare."""
    cell = answer.cell(name) if answer else None
    if answer is None or cell is None or cell.baseline:
        return None
    metric = METRICS[answer.metric]
    if answer.scaled:
        sentence = f"The {metric.title} is x {format_interval(cell.ratio)} compared with the baseline"
    else:
        sentence = (
            f"The {metric.title} differs by {format_interval(cell.difference, metric.unit, metric.format)}"
        )
    return f"{sentence}: shown." if cell.is_shown else f"{sentence}, not shown: {why(answer, cell)}."


def why(answer: Answer, cell: Cell) -> str:
    """Return why the difference of this cell is not shown."""
    if math.isnan(cell.difference.value):
        return "its baseline has no valid trial"
    if not math.isfinite(cell.least):
        return f"{blocks_are(answer.blocks)} too few to know"
    if cell.difference.excludes(0):
        compared = sum(not row.baseline for row in answer.cells)
        if compared > 1:
            return (
                f"among {compared} comparisons chance alone shows as much in more than one of 20 experiments"
            )
        return f"{noise_floor(answer, cell)} could be chance"
    return f"only differences above {noise_floor(answer, cell)} can be distinguished from noise"


def noise_floor(answer: Answer, cell: Cell) -> str:
    """Return the smallest difference that would be shown: ``12 %`` of the baseline, or an amount."""
    base, metric = answer.baseline(cell).median.value, METRICS[answer.metric]
    if answer.scaled and base:
        return f"{format_number(100 * cell.least / base)} %"
    return f"{metric.format(cell.least)} {metric.unit}".rstrip()


def blocks_are(blocks: int) -> str:
    """Return ``one block is`` or ``two blocks are``."""
    word = NUMBERS[blocks] if blocks < len(NUMBERS) else str(blocks)
    return f"{word} block{' is' if blocks == 1 else 's are'}"


def blocks_needed(answer: Answer) -> int | None:
    """Return how many blocks would show a difference of x 1.3; None if these do, or no number would."""
    compared = [cell for cell in answer.cells if not cell.baseline]
    if not compared or answer.fit is None or not answer.scaled or all(cell.is_shown for cell in compared):
        return None
    if not answer.fit.df or not math.isfinite(answer.noise_floor):
        return max(FIRST_BLOCKS, answer.blocks + 1)
    target = math.log(WORTH_SHOWING)
    now = math.log1p(answer.noise_floor / answer.cells[0].median.value)
    if now <= target:
        return None
    quantile = quantile_of_one(answer.fit.df, ALPHA, len(compared))
    for blocks in range(answer.blocks + 1, MOST_BLOCKS + 1):
        df = answer.fit.df + (blocks - answer.blocks) * len(answer.cells)
        shrunk = math.sqrt(answer.blocks / blocks) * quantile_of_one(df, ALPHA, len(compared)) / quantile
        if now * shrunk <= target:
            return blocks
    return None


def left_out(statuses: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line for each cell some of whose trials left the statistics.

    Args:
        statuses: for each cell, the statuses of its trials.
    """
    for cell, trials in statuses.items():
        excluded = [status for status in trials if status != "ok"]
        if excluded:
            kinds = ", ".join(dict.fromkeys(excluded))
            yield f"Left out ({cell}): {len(excluded)} of {len(trials)} trials ({kinds})."
