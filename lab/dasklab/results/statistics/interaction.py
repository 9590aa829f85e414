"""What levels of two factors add to the baseline together, and how much of that either adds by itself.

A cap and a flooded bridge may each cost little, and the two a lot. Of what their cell takes more than the
baseline each has the share that it adds while the other is at the baseline's level; the rest takes both.
Intervals are those of the model of ``dasklab.results.statistics.inference``: what its estimates may
be, drawn with their correlations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dasklab.results.statistics.inference import CONFIDENCE, Fit
from dasklab.results.statistics.measures import Answer, Cell, Interval, Values


@dataclass(frozen=True)
class Together:
    """What a cell adds, in the metric's unit; per cent of it by factor, and those that take both."""

    name: str
    added: Interval
    alone_pct: dict[str, Interval]
    both_pct: Interval


def together(answer: Answer) -> list[Together]:
    """Of each cell of ``answer`` in which both factors differ from the baseline, and that differs from it.

    Empty where there are not two factors, or one of them decides what is computed.
    """
    factors = list(answer.cells[0].factors)
    if len(factors) != 2 or answer.kinds or answer.fit is None or not answer.scaled:
        return []
    return list(_together(answer, answer.fit, *factors))


def _together(answer: Answer, fit: Fit, one: str, other: str) -> Iterator[Together]:
    base = answer.cells[0]
    by_levels = {(cell.factors[one], cell.factors[other]): cell for cell in answer.cells}
    for cell in answer.cells:
        one_alone = by_levels.get((cell.factors[one], base.factors[other]))
        other_alone = by_levels.get((base.factors[one], cell.factors[other]))
        if not cell.shown or one_alone is None or other_alone is None or cell in (one_alone, other_alone):
            continue
        both, first, second = _added(fit, base, [cell, one_alone, other_alone])
        yield Together(
            name=cell.name,
            added=cell.difference,
            alone_pct={one: _interval(100 * first / both), other: _interval(100 * second / both)},
            both_pct=_interval(100 * (both - first - second) / both),
        )


def _added(fit: Fit, base: Cell, cells: list[Cell]) -> Values:
    """What each cell adds, as shares of the baseline: a row per cell, the estimate first, then the draws."""
    drawn = fit.draws([(cell.name, base.name) for cell in cells])
    estimates = [[fit.difference(cell.name, base.name).value for cell in cells]]
    return np.asarray(np.expm1(np.vstack([estimates, drawn])).T)


def _interval(values: Values) -> Interval:
    """The first value, and where the others are."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values[1:], (tail, 1 - tail))
    return Interval(float(values[0]), float(low), float(high))
