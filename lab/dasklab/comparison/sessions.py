"""The difference between two sides whose records come from sessions, with its standard error.

Theory of operation
-------------------
The records of one session share its cluster, its minute and what else the machine did meanwhile, so they are
not independent: another session of the same work differs by more than they do among each other::

    value = side + session + record        session ~ Normal(0, b), record ~ Normal(0, w of its side)

A side's mean is the mean of its sessions' means. ``w`` is estimated in each side from the spread within
sessions, ``b`` from the spread of the sessions' means in both sides. The standard error of the difference
adds up the parts; its degrees of freedom are Satterthwaite's. One session on each side does not say how much
sessions differ, and two or three hardly do: ``b`` is at least ``SESSION_SPREAD``, and has ``ASSUMED_DF`` more
degrees of freedom than there are sessions to estimate it from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from dasklab.results.statistics.inference import ROUNDING, Estimate

SESSION_SPREAD = 0.02
"""Standard deviation between sessions on a machine that does nothing else, of logarithms."""
ASSUMED_DF = 10.0
LEAST_RECORDS = 2  # a standard error needs so many on each side


@dataclass(frozen=True)
class SessionValue:
    """A value of one record, and the session that it is from."""

    value: float
    session: str


def difference(new: Sequence[SessionValue], old: Sequence[SessionValue], spread: float) -> Estimate:
    """Return ``new`` minus ``old``.

    Args:
        spread: what is assumed of the standard deviation between sessions, in the unit of the values.
    """
    sides = [_Side.of(side) for side in (new, old)]
    value = sides[0].mean - sides[1].mean
    if min(len(new), len(old)) < LEAST_RECORDS:
        return Estimate(value)
    between, df = _between(sides, spread)
    sessions = between * sum(1 / len(side.means) for side in sides), df
    parts = [sessions, *((side.variance_within, side.df_within) for side in sides)]
    variance = sum(part for part, _ in parts)
    squares = sum(part**2 / df for part, df in parts if df)
    if variance <= ROUNDING**2:
        return Estimate(value, 0.0, df)
    return Estimate(value, math.sqrt(variance), variance**2 / squares)


def mean(side: Sequence[SessionValue]) -> float:
    """Return the mean of the sessions' means."""
    return _Side.of(side).mean


@dataclass(frozen=True)
class _Side:
    """The means of a side's sessions. ``variance_within`` is what records add to the variance of its mean."""

    means: NDArray[np.float64]
    variance_within: float
    df_within: int

    @classmethod
    def of(cls, side: Sequence[SessionValue]) -> _Side:
        ordered = sorted(side, key=lambda row: row.session)
        sessions = [
            np.array([row.value for row in rows]) for _, rows in groupby(ordered, lambda row: row.session)
        ]
        squares = sum(float(((values - values.mean()) ** 2).sum()) for values in sessions)
        df = len(side) - len(sessions)
        share = sum(1 / len(values) for values in sessions) / len(sessions) ** 2
        means = np.array([values.mean() for values in sessions])
        return cls(means, squares / df * share if df else 0.0, df)

    @property
    def mean(self) -> float:
        return float(self.means.mean())


def _between(sides: Sequence[_Side], spread: float) -> tuple[float, float]:
    """Return the variance between sessions, and its degrees of freedom."""
    df = sum(len(side.means) - 1 for side in sides)
    squares = sum(float(((side.means - side.mean) ** 2).sum()) for side in sides)
    within = sum(side.variance_within * len(side.means) * (len(side.means) - 1) for side in sides)
    variance = max(0.0, squares - within) / df if df else 0.0
    return max(spread**2, variance), ASSUMED_DF + df
