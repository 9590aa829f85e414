"""Why a difference is not shown, in words, and how many blocks would show one of x 1.3."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dasklab.model.metric import METRICS
from dasklab.results.statistics.inference import ALPHA, quantile_of_one
from dasklab.results.statistics.measures import Answer, Cell, interval, number

WORTH_SHOWING = 1.3  # blocks are recommended until a difference of this factor would be shown
FIRST_BLOCKS, MOST_BLOCKS = 4, 20
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def hidden(answer: Answer) -> list[str]:
    """A line for each reason why differences of this metric are not shown, with the cells it holds for."""
    cells: dict[str, list[str]] = {}
    for cell in answer.cells:
        if not cell.baseline and not cell.shown:
            cells.setdefault(why(answer, cell), []).append(cell.name)
    return [f"Not shown ({', '.join(names)}): {reason}." for reason, names in cells.items()]


def verdict(answer: Answer | None, name: str) -> str | None:
    """What a run says of one cell's difference, in a sentence; None of a cell that it lacks."""
    cell = answer.cell(name) if answer else None
    if answer is None or cell is None or cell.baseline:
        return None
    metric = METRICS[answer.metric]
    if answer.scaled:
        differs = f"The {metric.title} is {interval(cell.ratio)} times the baseline's"
    else:
        differs = f"The {metric.title} differs by {interval(cell.difference, metric.unit)}"
    return f"{differs}: shown." if cell.shown else f"{differs}, not shown: {why(answer, cell)}."


def why(answer: Answer, cell: Cell) -> str:
    """Why the difference of this cell is not shown."""
    if math.isnan(cell.difference.value):
        return "there is no valid trial of its baseline"
    if not math.isfinite(cell.least):
        return f"{count(answer.blocks)} too few to tell"
    if cell.difference.excludes(0):
        compared = sum(not each.baseline for each in answer.cells)
        if compared > 1:
            return (
                f"among {compared} comparisons chance alone shows as much in more than one of 20 experiments"
            )
        return f"{size(answer, cell)} could be chance"
    return f"only differences above {size(answer, cell)} can be told from noise"


def size(answer: Answer, cell: Cell) -> str:
    """The smallest difference that would be shown: ``12 %`` of the baseline, or an amount."""
    base, unit = answer.baseline(cell).median.value, METRICS[answer.metric].unit
    if answer.scaled and base:
        return f"{number(100 * cell.least / base)} %"
    return f"{number(cell.least)} {unit}".rstrip()


def count(blocks: int) -> str:
    """``one block is``, ``two blocks are``."""
    word = NUMBERS[blocks] if blocks < len(NUMBERS) else str(blocks)
    return f"{word} block{' is' if blocks == 1 else 's are'}"


def blocks_needed(answer: Answer) -> int | None:
    """With how many blocks a difference of x 1.3 would be shown; None where these do, or none would."""
    compared = [cell for cell in answer.cells if not cell.baseline]
    if not compared or answer.fit is None or not answer.scaled or all(cell.shown for cell in compared):
        return None
    if not answer.fit.df or not math.isfinite(answer.floor):
        return max(FIRST_BLOCKS, answer.blocks + 1)
    target, now = math.log(WORTH_SHOWING), math.log1p(answer.floor / answer.cells[0].median.value)
    if now <= target:
        return None
    quantile = quantile_of_one(answer.fit.df, ALPHA, len(compared))
    for blocks in range(answer.blocks + 1, MOST_BLOCKS + 1):
        df = answer.fit.df + (blocks - answer.blocks) * len(answer.cells)
        shrunk = math.sqrt(answer.blocks / blocks) * quantile_of_one(df, ALPHA, len(compared)) / quantile
        if now * shrunk <= target:
            return blocks
    return None


def unmeasured(statuses: dict[str, list[str]]) -> Iterator[str]:
    """A line for each cell of which trials left the statistics, from the statuses of its trials."""
    for cell, found in statuses.items():
        gone = [status for status in found if status != "ok"]
        if gone:
            kinds = ", ".join(dict.fromkeys(gone))
            yield f"Left out ({cell}): {len(gone)} of {len(found)} trials ({kinds})."
