"""Two factors at once: how much of the added time either level adds alone, and how much only both together.

A cap and a flooded bridge may each cost little, and both together a lot. Of what a cell adds to the baseline,
each level has the share that it adds while the other factor is at the baseline's level; the rest appears only
when both are combined. Intervals are those of the model in ``inference``: draws of what its estimates may be,
with their correlations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dasklab.results.statistics.answer import Answer, Cell
from dasklab.results.statistics.inference import CONFIDENCE, Fit, Values
from dasklab.results.statistics.interval import Interval


@dataclass(frozen=True)
class Interaction:
    """What a cell adds to the baseline.

    Attributes:
        name: the cell's name.
        added: in the metric's unit.
        alone_pct: by factor, the share that its level adds alone.
        combined_pct: the share that appears only when both levels are combined.
    """

    name: str
    added: Interval
    alone_pct: dict[str, Interval]
    combined_pct: Interval


def interactions(answer: Answer) -> list[Interaction]:
    """Return a row for each cell that differs from the baseline, in both factors and measurably.

    Empty if there are not two factors, or one of them decides what is computed.
    """
    factors = list(answer.cells[0].factors)
    if len(factors) != 2 or answer.kinds or answer.fit is None or not answer.scaled:
        return []
    return list(_interactions(answer, answer.fit, *factors))


def _interactions(answer: Answer, fit: Fit, first: str, second: str) -> Iterator[Interaction]:
    base = answer.cells[0]
    by_levels = {(cell.factors[first], cell.factors[second]): cell for cell in answer.cells}
    for cell in answer.cells:
        first_alone = by_levels.get((cell.factors[first], base.factors[second]))
        second_alone = by_levels.get((base.factors[first], cell.factors[second]))
        if not cell.is_shown or first_alone is None or second_alone is None:
            continue
        if cell in (first_alone, second_alone):
            continue
        total, by_first, by_second = _added(fit, base, [cell, first_alone, second_alone])
        yield Interaction(
            name=cell.name,
            added=cell.difference,
            alone_pct={first: _interval(100 * by_first / total), second: _interval(100 * by_second / total)},
            combined_pct=_interval(100 * (total - by_first - by_second) / total),
        )


def _added(fit: Fit, base: Cell, cells: list[Cell]) -> Values:
    """Return what each cell adds, as a share of the baseline; each row is the estimate, then the draws."""
    drawn = fit.draws([(cell.name, base.name) for cell in cells])
    estimates = [[fit.difference(cell.name, base.name).value for cell in cells]]
    return np.asarray(np.expm1(np.vstack([estimates, drawn])).T)


def _interval(values: Values) -> Interval:
    """Return the first value with the central 95 % of the others."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values[1:], (tail, 1 - tail))
    return Interval(float(values[0]), float(low), float(high))
