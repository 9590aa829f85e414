"""What levels of two factors add to the baseline together, and how much of that either adds by itself.

A cap and a flooded bridge may each cost little, and the two a lot. Of what their cell takes more than the
baseline each has the share that it adds while the other is at the baseline's level; the rest takes both.
Compared as in ``lab.results.measures``: medians inside each block, averaged over blocks, drawn anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lab.results.measures import Answer, Interval, Values, bootstrap, counted, strata


@dataclass(frozen=True)
class Together:
    """What a cell adds, in the metric's unit; per cent of it by factor, and those that take both."""

    name: str
    added: Interval
    alone_pct: dict[str, Interval]
    both_pct: Interval


def together(frame: pd.DataFrame, answer: Answer) -> list[Together]:
    """Of each cell of ``answer`` in which both factors differ from the baseline, and that differs from it.

    Empty where there are not two factors, or one of them decides what is computed.
    """
    factors = list(answer.cells[0].factors)
    if len(factors) != 2 or answer.kinds:
        return []
    valid = counted(frame, answer.metric)
    tested, base = valid[~valid.null], valid[valid.baseline]
    shown = [cell.name for cell in answer.cells if cell.shown]
    return list(_together(tested[tested.cell.isin(shown)], tested, base, *factors))


def _together(
    shown: pd.DataFrame, tested: pd.DataFrame, base: pd.DataFrame, one: str, other: str
) -> Iterator[Together]:
    usual = base.iloc[0]
    apart = shown[(shown[one] != usual[one]) & (shown[other] != usual[other])]
    for name, cell in apart.groupby("cell", sort=False):
        one_alone = tested[(tested[one] == cell[one].iloc[0]) & (tested[other] == usual[other])]
        other_alone = tested[(tested[one] == usual[one]) & (tested[other] == cell[other].iloc[0])]
        samples = [strata(part) for part in (cell, one_alone, other_alone, base)]
        common = sorted(set.intersection(*map(set, samples)))
        data = [part[key] for key in common for part in samples]
        if data:
            yield Together(
                name=str(name),
                added=_of(data, lambda both, first, second: both),
                alone_pct={
                    one: _of(data, lambda both, first, second: 100 * first / both),
                    other: _of(data, lambda both, first, second: 100 * second / both),
                },
                both_pct=_of(data, lambda both, first, second: 100 * (both - first - second) / both),
            )


def _of(data: list[Values], how: Callable[[Any, Any, Any], Any]) -> Interval:
    """``how`` of what both levels add and of what each does; ``data`` has four cells' samples by block."""

    def statistic(*drawn: Values, axis: int = -1) -> Any:
        medians = [np.median(samples, axis=axis) for samples in drawn]
        both, first, second, base = (np.mean(medians[cell::4], axis=0) for cell in range(4))
        return how(both - base, first - base, second - base)

    return bootstrap(data, statistic)
