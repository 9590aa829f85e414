"""What the samples say, and how sure that is. It reads only the tidy table.

Cells are compared with the baseline inside each block, one value per trial.
``dasklab.results.statistics.inference`` explains the model, its intervals and when a
difference is shown. Slopes are Theil-Sen's, over trials. What was simulated may be off besides by what
simulations were missed by where they were compared: intervals of cells and of what they differ by are wider
by that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dasklab.model.metric import METRICS
from dasklab.results.statistics.inference import ALPHA, CONFIDENCE, Estimate, Fit
from dasklab.results.statistics.trial_values import Scale, is_scaled

ENGINE = "engine"  # the factor that says what computes
MAIN_SHARE = (
    0.8  # of the error rate goes to an experiment's first metric, its answer; the others share the rest
)
NULL = "null trial"
LARGEST = 700.0  # whose exponential is still a number
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its interval; the ends are NaN where there are too few samples."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def reach(self) -> float:
        """The farthest from 0 that the estimate may be."""
        known = [abs(end) for end in (self.value, self.low, self.high) if not math.isnan(end)]
        return max(known)

    def widened(self, missed: float) -> Interval:
        """Of something above 0 that may be off by this share besides."""
        return Interval(self.value, self.low / (1 + missed), self.high * (1 + missed))

    def excludes(self, number: float) -> bool:
        """Does the whole interval lie on one side of ``number``? Without an interval it is not known: no."""
        return self.low > number or self.high < number


def number(value: float) -> str:
    """Three digits, as people write them."""
    if not math.isfinite(value):
        return "\u2013"
    rounded = float(f"{value:.3g}")
    if rounded and abs(rounded) < 0.001:
        return f"{rounded:.1e}"
    digits = max(0, 2 - math.floor(math.log10(abs(rounded)))) if rounded else 0
    return f"{rounded:,.{digits}f}"


def interval(found: Interval, unit: str = "") -> str:
    """``4.16 (4.05 to 4.26) s``; without an interval only the value."""
    ends = "" if math.isnan(found.low) else f" ({number(found.low)} to {number(found.high)})"
    return f"{number(found.value)}{ends}{' ' if unit else ''}{unit}"


def less(gain_pct: Interval) -> str:
    """``0.31 (0.25 to 0.37) % less``, or more; nothing shown where the interval holds 0."""
    if not gain_pct.excludes(0):
        return f"nothing shown: {interval(gain_pct)} % less"
    if gain_pct.value > 0:
        return f"{interval(gain_pct)} % less"
    return f"{interval(Interval(-gain_pct.value, -gain_pct.high, -gain_pct.low))} % more"


@dataclass(frozen=True)
class Cell:
    """One cell's samples against those of the baseline of its kind, which it may be itself (``baseline``).

    ``n`` counts samples, ``trials`` the trials that they are from. ``least`` is the smallest difference that
    would be shown, in the metric's unit. ``shown`` is the verdict: a difference larger than what chance makes
    of as many comparisons as the experiment has.
    """

    name: str
    factors: dict[str, object]
    baseline: bool
    n: int
    trials: int
    median: Interval
    mean: float
    lowest: float
    highest: float
    difference: Interval
    ratio: Interval
    least: float
    shown: bool


@dataclass(frozen=True)
class Answer:
    """What one metric says over an experiment's cells; the first cell is the baseline.

    ``kinds`` are the factors that decide what is computed, or by which engine. Only like is compared with
    like: each kind's baseline has the other factors at the baseline's levels. ``null`` is what the null trial
    differs by from the baseline, ``blocks`` how many blocks the trials are from, ``fit`` the model of all.
    """

    metric: str
    kinds: tuple[str, ...]
    cells: list[Cell]
    null: Interval | None
    slopes: dict[str, Interval]
    blocks: int = 1
    fit: Fit | None = field(default=None, repr=False, compare=False)

    @property
    def scaled(self) -> bool:
        """Do ratios to the baseline say something? They do not where the baseline is next to nothing."""
        return math.isfinite(self.cells[0].ratio.value)

    @property
    def floor(self) -> float:
        """The smallest difference from the baseline that would be shown; NaN where none could be."""
        least = [cell.least for cell in self.cells if not cell.baseline and math.isfinite(cell.least)]
        return float(np.median(least)) if least else math.nan

    def cell(self, name: str) -> Cell | None:
        """The cell of that name, if it was measured."""
        return next((cell for cell in self.cells if cell.name == name), None)

    def baseline(self, cell: Cell) -> Cell:
        """What a cell is compared with; of a kind without a valid baseline it is compared with nothing."""
        alike = (one for one in self.cells if one.baseline and self._kind(one) == self._kind(cell))
        return next(alike, self.cells[0])

    def _kind(self, cell: Cell) -> list[object]:
        return [cell.factors[factor] for factor in self.kinds]


def error_rates(metrics: Sequence[str]) -> dict[str, float]:
    """Each metric's share of the chance that an experiment in which nothing differs shows a difference."""
    if len(metrics) < 2:
        return dict.fromkeys(metrics, ALPHA)
    rest = (1 - MAIN_SHARE) * ALPHA / (len(metrics) - 1)
    return {metric: MAIN_SHARE * ALPHA if place == 0 else rest for place, metric in enumerate(metrics)}


def answers(frame: pd.DataFrame, metrics: Sequence[str]) -> dict[str, Answer | None]:
    """The answer of each of an experiment's metrics, the main one first; None without a baseline."""
    factors = frame.attrs["factors"]
    return {metric: answer(frame, metric, factors, rate) for metric, rate in error_rates(metrics).items()}


def answer(frame: pd.DataFrame, metric: str, factors: Sequence[str], alpha: float = ALPHA) -> Answer | None:
    """Every cell of ``metric`` in ``frame``; None without a baseline.

    ``alpha`` is the chance that any difference is shown where there is none.
    """
    valid = counted(frame, metric)
    base = valid[valid.baseline]
    if base.empty:
        return None
    tested = valid[~valid.null]
    first = base.cell.iloc[0]
    names = [first, *(name for name in tested.cell.unique() if name != first)]
    kinds = tuple(factor for factor in factors if _tells_kinds(tested, factor))
    bases = {name: _base_of(tested, name, base, kinds, factors) for name in names}
    trials = _trials(valid, bases, metric)
    fit = Fit(list(trials.frame.cell), list(trials.frame.stratum), trials.frame.value.to_numpy())
    trials.frame["drift"] = fit.drift
    pairs = [(name, own) for name, own in bases.items() if own not in (None, name)]
    thresholds = dict(zip((name for name, _ in pairs), fit.thresholds(pairs, alpha), strict=True))
    cells = [
        _cell(tested[tested.cell == name], own, trials, fit, thresholds.get(name, math.nan), factors)
        for name, own in bases.items()
    ]
    slopes = {factor: _slope(tested, trials, base, factor, factors) for factor in factors}
    return Answer(
        metric,
        kinds,
        cells,
        _null(trials, first, cells[0].median.value),
        {factor: slope for factor, slope in slopes.items() if slope},
        trials.frame[["run", "block"]].drop_duplicates().shape[0],
        fit,
    )


def counted(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The samples that count: of valid trials, without warm-ups and probes of links that no trial changes."""
    return frame[(frame.metric == metric) & ~frame.warmup & frame.status.eq("ok") & frame.tested]


def by_node(frame: pd.DataFrame, metric: str) -> dict[str, tuple[int, Interval]]:
    """Node, or the nodes that a way crosses, -> samples and median of the probes there, baseline's alone.

    Empty where all of them were on one node, or nobody said where.
    """
    probes = frame[(frame.metric == metric) & frame.baseline & frame.status.eq("ok") & frame.dst.ne("")]
    found = {
        str(node): (len(mine), typical(mine)) for node, mine in probes[probes.node.ne("")].groupby("node")
    }
    return found if len(found) > 1 else {}


def typical(samples: pd.DataFrame) -> Interval:
    """What samples of one cell are usually: their trials' medians averaged, with an interval over trials."""
    scale = Scale.of(samples, is_scaled(samples, zero_based=False))
    rows = scale.values(samples)
    blocks = list(zip(rows.run, rows.block, strict=True))
    fit = Fit(["cell"] * len(rows), blocks, rows.value.to_numpy())
    return level(fit.mean("cell"), float(rows.reference.mean()), scale.log)


def slope(x: Values, y: Values) -> Interval:
    """Theil-Sen's slope of ``y`` over ``x``: the median of the slopes of all pairs of samples."""
    from scipy.stats import theilslopes

    fit = theilslopes(y, x, CONFIDENCE)
    return Interval(float(fit.slope), float(fit.low_slope), float(fit.high_slope))


@dataclass(frozen=True)
class _Trials:
    """One row per trial, with its stratum: the trials that it is compared with."""

    metric: str
    log: bool
    frame: pd.DataFrame

    def reference(self, cell: str) -> float:
        """What the baseline measured between the pairs of hosts that this cell's trials probed."""
        return float(self.frame[self.frame.cell == cell].reference.mean())


def _tells_kinds(tested: pd.DataFrame, factor: str) -> bool:
    """Does a factor decide what is computed, or by what?"""
    computed = tested.groupby(factor).workload.nunique()
    return factor == ENGINE or (tested.workload.nunique() > 1 and computed.max() == 1)


def _base_of(
    tested: pd.DataFrame, name: str, base: pd.DataFrame, kinds: Sequence[str], factors: Sequence[str]
) -> str | None:
    """The cell of this one's kind with all other factors as the baseline has them; there may be none."""
    mine, alike = tested[tested.cell == name], tested
    for factor in factors:
        alike = alike[alike[factor] == (mine if factor in kinds else base)[factor].iloc[0]]
    return None if alike.empty else str(alike.cell.iloc[0])


def _trials(valid: pd.DataFrame, bases: Mapping[str, str | None], metric: str) -> _Trials:
    """One value per trial, relative to the baseline of its kind."""
    log = is_scaled(valid, METRICS[metric].zero_based)
    parts = []
    for own in dict.fromkeys(own or name for name, own in bases.items()):
        names = [name for name, base in bases.items() if (base or name) == own]
        samples = valid[valid.cell.isin(names)]
        rows = Scale.of(samples[samples.cell == own], log).values(samples)
        rows["stratum"] = list(zip([own] * len(rows), rows.run, rows.block, strict=True))
        parts.append(rows)
    return _Trials(metric, log, pd.concat(parts, ignore_index=True))


def _null(trials: _Trials, first: str, level: float) -> Interval | None:
    """What the null trial, taken for a cell of its own, differs by from the baseline."""
    rows = trials.frame
    if not rows.null.any():
        return None
    cells = [NULL if null else cell for null, cell in zip(rows.null, rows.cell, strict=True)]
    if first not in cells:
        return None
    fit = Fit(cells, list(rows.stratum), rows.value.to_numpy())
    return _change(fit.difference(NULL, first), level, trials.log)


def _cell(
    mine: pd.DataFrame, own: str | None, trials: _Trials, fit: Fit, threshold: float, factors: Sequence[str]
) -> Cell:
    name = str(mine.cell.iloc[0])
    values, missed = mine.value.to_numpy(dtype=float), float(mine.prediction_error.max())
    reference = trials.reference(name)
    middle = level(fit.mean(name), reference, trials.log)
    unknown, is_base = Interval(math.nan), name == own
    change = times = unknown
    least = math.nan
    scaled = not METRICS[trials.metric].zero_based
    if own is not None:
        estimate = Estimate(0.0) if is_base else fit.difference(name, own)
        usual = level(fit.mean(own), reference, trials.log).value
        change = _change(estimate, usual, trials.log)
        least = _change(Estimate(threshold), usual, trials.log).value
        scaled = scaled and usual != 0
        if scaled and is_base:
            times = Interval(1.0)
        elif scaled:
            times = Interval(*(1 + end / usual for end in (change.value, change.low, change.high)))
    below, above = middle.value * missed / (1 + missed), middle.value * missed
    change = Interval(change.value, change.low - below, change.high + above)
    beyond = not is_base and own is not None and abs(estimate.value) > threshold
    return Cell(
        name=name,
        factors={factor: mine[factor].iloc[0] for factor in factors},
        baseline=is_base,
        n=len(values),
        trials=int(((trials.frame.cell == name) & ~trials.frame.null).sum()),
        median=middle.widened(missed),
        mean=float(values.mean()),
        lowest=float(values.min()),
        highest=float(values.max()),
        difference=change,
        ratio=times if is_base else times.widened(missed),
        least=least,
        shown=beyond and change.excludes(0),
    )


def exp(value: float) -> float:
    """The exponential; of what is too large for a number, infinity."""
    return math.exp(value) if value < LARGEST or math.isnan(value) else math.inf


def level(estimate: Estimate, reference: float, log: bool) -> Interval:
    """A cell's own level, in the metric's unit."""
    value = reference + estimate.value
    ends = (value, value - estimate.margin, value + estimate.margin)
    return Interval(*map(exp, ends)) if log else Interval(*ends)


def _change(estimate: Estimate, level: float, log: bool) -> Interval:
    """A difference in the metric's unit, from a baseline of this level."""
    ends = (estimate.value, estimate.value - estimate.margin, estimate.value + estimate.margin)
    return Interval(*(level * (exp(end) - 1) for end in ends)) if log else Interval(*ends)


def _slope(
    tested: pd.DataFrame, trials: _Trials, base: pd.DataFrame, factor: str, factors: Sequence[str]
) -> Interval | None:
    """The slope over a numeric factor of three or more levels, the other factors at the baseline.

    Not over rates: a rate of 0 is no cap at all, so rates are names of levels rather than amounts.
    """
    along = tested
    for other in factors:
        if other != factor:
            along = along[along[other] == base[other].iloc[0]]
    amounts = pd.api.types.is_numeric_dtype(along[factor]) and not factor.endswith("_mbit")
    if not amounts or along[factor].nunique() < 3:
        return None
    levels = dict(zip(along.cell, along[factor].astype(float), strict=True))
    rows = trials.frame[trials.frame.cell.isin(list(levels)) & ~trials.frame.null]
    steady = rows.value + rows.reference - rows.drift + rows.drift.mean()
    values = np.exp(steady) if trials.log else steady
    return slope(rows.cell.map(levels).to_numpy(dtype=float), values.to_numpy(dtype=float))
