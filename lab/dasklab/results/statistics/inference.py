"""Compare cells of an experiment when the trial, not the repeat, is the unit.

Theory of operation
-------------------
Repeats of one trial share its cluster, its placement and its minute, so ten of them are not ten independent
measurements: what they share varies from trial to trial. Each trial is therefore reduced to one value (the
median of its repeats, as a logarithm where ratios make sense; see ``scale``), and the variance of these
values is estimated from the trials themselves::

    value = cell + block + noise        noise ~ Normal(0, s)

A block is a stretch of time in which every cell was measured once; its term removes the machine's drift. The
null trial is an exact copy of the baseline, so it belongs to the baseline's cell: each block has two baseline
trials.

With two to four blocks, the variance of a single cell cannot be estimated from that cell. ``s`` is therefore
one number for all cells, pooled over them: K cells in B blocks leave K (B - 1) + 1 degrees of freedom.
Intervals are Student's. If a cell's own trials vary significantly more than those of the others
(``SUSPICIOUS``), the cell is judged by its own variance and its own few degrees of freedom instead.

A single interval covers the true value in 95 % of cases. An experiment compares several cells with one
baseline, so a difference is shown only if it also exceeds a quantile of the largest of all these comparisons
under "no difference" (Dunnett's test for any design: the quantile is computed from the comparisons'
correlations). At most one experiment in 20 then shows a difference that does not exist.

Cells that share no block (two runs, two days) are compared by their means, with the variance between blocks
added (Satterthwaite's degrees of freedom). How much one day differs from the next cannot be estimated from
two days.

``benchmarks/statistics_simulated.py`` checks the coverage, the rate of false differences and the power.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, stdtr, stdtrit  # scipy.stats takes a second to import

CONFIDENCE = 0.95
ALPHA = 0.04  # the chance that an experiment without differences shows one; we promise 0.05
# A cell has its own variance if chance makes any cell's so much larger in at most this share of experiments.
SUSPICIOUS = 0.05
LEAST_OWN_DF = 2  # degrees of freedom that a cell needs for that; with one, nothing is significant
DRAWS, SEED = 100_000, 1
ROUNDING = 1e-9  # values that never vary still differ by rounding
Values = NDArray[np.float64]
Pair = tuple[Hashable, Hashable]  # a cell and the cell that it is compared with


@dataclass(frozen=True)
class Estimate:
    """A difference with its standard error (NaN if the design gives none) and degrees of freedom."""

    value: float
    error: float = math.nan
    df: float = 0.0

    @property
    def has_error(self) -> bool:
        """Whether there is a standard error."""
        return math.isfinite(self.error) and self.df > 0

    @property
    def margin(self) -> float:
        """Half of the width of the 95 % interval; NaN without a standard error."""
        return self.error * float(stdtrit(self.df, (1 + CONFIDENCE) / 2)) if self.has_error else math.nan

    @property
    def p_value(self) -> float:
        """How often chance alone makes a difference this large; 1 without a standard error."""
        if not self.has_error or abs(self.value) <= ROUNDING:
            return 1.0
        if self.error <= ROUNDING:
            return 0.0
        return 2 * float(stdtr(self.df, -abs(self.value) / self.error))


@dataclass(frozen=True)
class _Spread:
    """The variance of single trials in any block (``total``) and inside one block (``noise``)."""

    total: float
    noise: float
    df: float


class Fit:
    """The additive model of cells and blocks, fitted to one value per trial by least squares."""

    def __init__(self, cells: Sequence[Hashable], blocks: Sequence[Hashable], values: Values) -> None:
        self.cells = list(dict.fromkeys(cells))
        self._blocks = list(dict.fromkeys(blocks))
        self._cell = np.array([self.cells.index(cell) for cell in cells])
        self._block = np.array([self._blocks.index(block) for block in blocks])
        self._values = np.asarray(values, dtype=float)
        self._design = np.hstack(
            [np.eye(len(self.cells))[self._cell], np.eye(len(self._blocks))[self._block]]
        )
        self._inverse = np.linalg.pinv(self._design.T @ self._design)
        self._effects = self._inverse @ (self._design.T @ self._values)
        self._residuals = self._values - self._design @ self._effects
        left = len(self._values) - int(np.linalg.matrix_rank(self._design))
        self.df = left if self._is_repeated else 0

    @property
    def _is_repeated(self) -> bool:
        """Whether any cell was measured in two blocks. One block says nothing about the next."""
        return len(set(zip(self._cell, self._block, strict=True))) > len(self.cells)

    @property
    def drift(self) -> Values:
        """The term of each trial's block."""
        return np.asarray(self._effects[len(self.cells) :][self._block])

    def difference(self, new: Hashable, old: Hashable) -> Estimate:
        """Return ``new`` minus ``old``: inside blocks if they share some, else between blocks."""
        weights = self._weights(new, old)
        if self._compares(weights):
            return self._inside(weights, new, old)
        return self._between(new, old)

    def mean(self, cell: Hashable) -> Estimate:
        """Return a cell's mean over its trials, with the variance between blocks and between trials."""
        own = self._cell == self.cells.index(cell)
        value, spread = float(self._values[own].mean()), self._total_variance
        if spread is None:
            return Estimate(value)
        blocks, noise = len(set(self._block[own])), min(spread.noise, spread.total)
        variance = (spread.total - noise) / blocks + noise / int(own.sum())
        return Estimate(value, math.sqrt(variance), spread.df)

    def thresholds(self, pairs: Sequence[Pair], alpha: float = ALPHA) -> list[float]:
        """Return the size that each of these differences must exceed to be shown; NaN if none could be.

        If no difference is real, any of them exceeds its threshold in a share ``alpha`` of all cases.
        """
        estimates = [self.difference(new, old) for new, old in pairs]
        largest = self._critical(pairs, alpha)
        return [
            ROUNDING
            + estimate.error
            * (largest if estimate.df == self.df else quantile_of_one(estimate.df, alpha, len(pairs)))
            if estimate.has_error
            else math.nan
            for estimate in estimates
        ]

    def _critical(self, pairs: Sequence[Pair], alpha: float) -> float:
        """Return how many standard errors the largest difference inside blocks has by chance."""
        weights = [self._weights(new, old) for new, old in pairs]
        inside = np.array([w for w in weights if self._compares(w)])
        if not len(inside) or not self.df:
            return math.nan
        covariance = inside @ self._inverse @ inside.T
        spread = np.sqrt(np.diag(covariance))
        correlation = np.round(covariance / np.outer(spread, spread), 6)
        between = len(pairs) - len(inside)  # these are compared in another way, and have their share of alpha
        rate = alpha * len(inside) / len(pairs) if between else alpha
        return _largest(self.df, rate, len(inside), correlation.tobytes())

    def draws(self, pairs: Sequence[Pair], count: int = DRAWS // 10) -> Values:
        """Draw what these differences may be, with their correlations: a row per draw, a column per pair."""
        weights = np.array([self._weights(new, old) for new, old in pairs])
        random = np.random.default_rng(SEED)
        covariance = self._pooled * (weights @ self._inverse @ weights.T)
        scale = np.sqrt(random.chisquare(self.df, count) / self.df)[:, None]
        normal = random.multivariate_normal(np.zeros(len(pairs)), covariance, count, method="svd")
        return np.asarray(weights @ self._effects + normal / scale)

    @cached_property
    def _pooled(self) -> float:
        return float(self._residuals @ self._residuals) / self.df if self.df else math.nan

    def _weights(self, new: Hashable, old: Hashable) -> Values:
        weights = np.zeros(self._design.shape[1])
        weights[self.cells.index(new)] += 1
        weights[self.cells.index(old)] -= 1
        return weights

    def _compares(self, weights: Values) -> bool:
        """Whether blocks connect the two cells, so that the drift between blocks cancels."""
        projected = weights @ self._inverse @ self._design.T @ self._design
        return bool(np.allclose(projected, weights, atol=1e-6))

    def _inside(self, weights: Values, new: Hashable, old: Hashable) -> Estimate:
        value = float(weights @ self._effects)
        share = float(weights @ self._inverse @ weights)
        pooled = Estimate(value, math.sqrt(self._pooled * share) if self.df else math.nan, self.df)
        wide = [own for cell in (new, old) if (own := self._own_variance(cell)) is not None]
        if not wide or not pooled.has_error:
            return pooled
        variance, df = max(wide)
        error = math.sqrt(variance * share)
        return Estimate(value, error, df) if error > pooled.error else pooled

    def _own_variance(self, cell: Hashable) -> tuple[float, float] | None:
        """Return variance and degrees of freedom of a cell's own trials, if it is significantly larger."""
        is_own = self._cell == self.cells.index(cell)
        own_df = int(is_own.sum()) - 1
        # the fitted block terms absorb a part of a cell's squares
        leverage = np.einsum("ij,jk,ik->i", self._design, self._inverse, self._design)
        own_expected = float((1 - leverage)[is_own].sum())
        rest_expected = float((1 - leverage)[~is_own].sum())
        if own_df < LEAST_OWN_DF or own_expected <= ROUNDING or rest_expected < 1:
            return None
        own = float((self._residuals[is_own] ** 2).sum()) / own_expected
        rest = float((self._residuals[~is_own] ** 2).sum()) / rest_expected
        if own <= ROUNDING or (
            rest > 0 and fdtrc(own_expected, rest_expected, own / rest) > SUSPICIOUS / len(self.cells)
        ):
            return None
        return own, float(own_df)

    @cached_property
    def _total_variance(self) -> _Spread | None:
        """The variance of a trial's value, including that of its block; None if there are too few blocks."""
        sizes = np.bincount(self._cell)
        means = np.bincount(self._cell, self._values) / sizes
        deviations = self._values - means[self._cell]
        df_all = len(self._values) - len(self.cells)
        df_blocks = df_all - self.df
        if df_blocks < 1 or not self._is_repeated:
            return None
        noise = float(self._residuals @ self._residuals)
        between = max(0.0, (float(deviations @ deviations) - noise) / df_blocks)
        inside = noise / self.df if self.df else 0.0
        share = len(self._blocks) / len(
            self._values
        )  # a block's mean square contains its variance once per trial
        # a sum of mean squares, each with its own degrees of freedom: Satterthwaite
        parts = [(share * between, df_blocks), ((1 - share) * inside, self.df)]
        variance = sum(part for part, _ in parts)
        squares = sum(part**2 / df for part, df in parts if df)
        df = max(1.0, variance**2 / squares) if variance > ROUNDING**2 else float(df_all)
        return _Spread(variance, inside, df)

    def _between(self, new: Hashable, old: Hashable) -> Estimate:
        after, before = self.mean(new), self.mean(old)
        return Estimate(after.value - before.value, math.hypot(after.error, before.error), after.df)


def quantile_of_one(df: float, alpha: float, count: int) -> float:
    """Return how many standard errors one of ``count`` differences may have by chance, however correlated."""
    return float(stdtrit(df, 1 - alpha / 2 / count))


@cache
def _largest(df: int, alpha: float, count: int, correlation: bytes) -> float:
    matrix = np.frombuffer(correlation).reshape(count, count)
    if count == 1:
        return float(stdtrit(df, 1 - alpha / 2))
    random = np.random.default_rng(SEED)
    normal = random.multivariate_normal(np.zeros(count), matrix, DRAWS, method="svd")
    largest = np.abs(normal).max(axis=1) / np.sqrt(random.chisquare(df, DRAWS) / df)
    return float(np.quantile(largest, 1 - alpha))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number (Holm): at most 5 % of such lists have one below 0.05 by chance."""
    ranked = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, highest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(ranked):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected
