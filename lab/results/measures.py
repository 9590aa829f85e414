"""What the samples say, and how sure that is. Reads only the tidy table of ``lab.results.store.load``.

Cells are compared with the baseline inside each block, because a machine drifts from block to block by more
than most effects. The null trial, an exact copy of the baseline, is compared in the same way: what it seems
to differ by is the noise floor, and a difference below that is not shown. Intervals are 95 % bootstrap
intervals (scipy's percentile method, samples drawn anew inside each block); slopes are Theil-Sen's. What was
simulated may be off besides by what simulations were missed by where they were compared: intervals of cells
and of what they differ by are wider by that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lab.model.metric import METRICS

CONFIDENCE = 0.95
RESAMPLES = 2000
SEED = 1
ENGINE = "engine"  # the factor that says what computes
Values = NDArray[np.float64]
Strata = dict[Any, Values]  # what is compared only with its like -> its samples


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

    ``shown`` is the verdict: a difference above the noise.
    """

    name: str
    factors: dict[str, object]
    baseline: bool
    n: int
    median: Interval
    mean: Interval
    lowest: float
    highest: float
    difference: Interval
    ratio: Interval
    shown: bool


@dataclass(frozen=True)
class Answer:
    """What one metric says over an experiment's cells; the first cell is the baseline.

    ``kinds`` are the factors that decide what is computed, or by which engine. Only like is compared with
    like: each kind's baseline has the other factors at the baseline's levels.
    """

    metric: str
    kinds: tuple[str, ...]
    cells: list[Cell]
    null: Interval | None
    slopes: dict[str, Interval]

    @property
    def scaled(self) -> bool:
        """Do ratios to the baseline say something? They do not where the baseline is next to nothing."""
        return math.isfinite(self.cells[0].ratio.value)

    @property
    def floor(self) -> float:
        """Differences up to this are noise, in the metric's unit; NaN without a null trial."""
        return math.nan if self.null is None else self.null.reach

    def cell(self, name: str) -> Cell | None:
        """The cell of that name, if it was measured."""
        return next((cell for cell in self.cells if cell.name == name), None)

    def baseline(self, cell: Cell) -> Cell:
        """What a cell is compared with; of a kind without a valid baseline it is compared with nothing."""
        alike = (one for one in self.cells if one.baseline and self._kind(one) == self._kind(cell))
        return next(alike, self.cells[0])

    def _kind(self, cell: Cell) -> list[object]:
        return [cell.factors[factor] for factor in self.kinds]


def answer(frame: pd.DataFrame, metric: str, factors: Sequence[str]) -> Answer | None:
    """Every cell of ``metric`` in ``frame``; None without a baseline."""
    valid = counted(frame, metric)
    base = valid[valid.baseline]
    if base.empty:
        return None
    null_samples = valid[valid.null]
    null = None if null_samples.empty else difference(strata(null_samples), strata(base))
    floor = math.nan if null is None else null.reach
    tested = valid[~valid.null]
    names = [base.cell.iloc[0], *(name for name in tested.cell.unique() if name != base.cell.iloc[0])]
    scaled = not METRICS[metric].zero_based and base.value.median() != 0
    kinds = tuple(factor for factor in factors if _tells_kinds(tested, factor))
    cells = []
    for name in names:
        mine = tested[tested.cell == name]
        own = _alike(tested, mine, base, kinds, factors)
        noise = floor * own.value.median() / base.value.median() if scaled and len(own) else floor
        cells.append(_cell(name, mine, own, factors, noise, scaled))
    slopes = {factor: _slope(tested, base, factor, factors) for factor in factors}
    return Answer(metric, kinds, cells, null, {factor: found for factor, found in slopes.items() if found})


def counted(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The samples that count: of valid trials, without warm-ups and probes of links that no trial changes."""
    return frame[(frame.metric == metric) & ~frame.warmup & frame.status.eq("ok") & frame.tested]


def _tells_kinds(tested: pd.DataFrame, factor: str) -> bool:
    """Does a factor decide what is computed, or by what?"""
    computed = tested.groupby(factor).workload.nunique()
    return factor == ENGINE or (tested.workload.nunique() > 1 and computed.max() == 1)


def _alike(
    tested: pd.DataFrame,
    mine: pd.DataFrame,
    base: pd.DataFrame,
    kinds: Sequence[str],
    factors: Sequence[str],
) -> pd.DataFrame:
    """The samples of a cell's kind with all other factors as the baseline has them; there may be none."""
    found = tested
    for factor in factors:
        found = found[found[factor] == (mine if factor in kinds else base)[factor].iloc[0]]
    return found


def by_node(frame: pd.DataFrame, metric: str) -> dict[str, tuple[int, Interval]]:
    """Node, or the nodes that a way crosses, -> samples and median of the probes there, baseline's alone.

    Empty where all of them were on one node, or nobody said where.
    """
    probes = frame[(frame.metric == metric) & frame.baseline & frame.status.eq("ok") & frame.dst.ne("")]
    found = {
        str(node): (len(here), median(here.value.to_numpy(dtype=float)))
        for node, here in probes[probes.node.ne("")].groupby("node")
    }
    return found if len(found) > 1 else {}


def median(values: Values) -> Interval:
    """The median with its interval."""
    return bootstrap([values], np.median)


def mean(values: Values) -> Interval:
    """The mean with its interval."""
    return bootstrap([values], np.mean)


def difference(samples: Strata, base: Strata) -> Interval:
    """Median of ``samples`` minus that of ``base`` in each stratum, averaged over those of both."""
    return _paired(samples, base, lambda a, b: a - b)


def ratio(samples: Strata, base: Strata) -> Interval:
    """Median of ``samples`` over that of ``base`` in each stratum, averaged; not finite over a base of 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return _paired(samples, base, lambda a, b: a / b)


def slope(x: Values, y: Values) -> Interval:
    """Theil-Sen's slope of ``y`` over ``x``: the median of the slopes of all pairs of samples."""
    from scipy.stats import theilslopes

    fit = theilslopes(y, x, CONFIDENCE)
    return Interval(float(fit.slope), float(fit.low_slope), float(fit.high_slope))


def _cell(
    name: str, mine: pd.DataFrame, base: pd.DataFrame, factors: Sequence[str], floor: float, scaled: bool
) -> Cell:
    values = mine.value.to_numpy(dtype=float)
    missed = float(mine.missed.max())
    unknown = Interval(math.nan)
    change = difference(strata(mine), strata(base)) if len(base) else unknown
    middle = median(values)
    below, above = middle.value * missed / (1 + missed), middle.value * missed
    change = Interval(change.value, change.low - below, change.high + above)
    is_base = bool(len(base)) and mine.cell.iloc[0] == base.cell.iloc[0]
    times = Interval(1.0) if scaled and is_base else unknown
    if scaled and len(base) and not is_base:
        times = ratio(strata(mine), strata(base)).widened(missed)
    return Cell(
        name=name,
        factors={factor: mine[factor].iloc[0] for factor in factors},
        baseline=is_base,
        n=len(values),
        median=middle.widened(missed),
        mean=mean(values).widened(missed),
        lowest=float(values.min()),
        highest=float(values.max()),
        difference=change,
        ratio=times,
        shown=not is_base and change.excludes(0) and not abs(change.value) <= floor,
    )


def _slope(tested: pd.DataFrame, base: pd.DataFrame, factor: str, factors: Sequence[str]) -> Interval | None:
    """The slope over a numeric factor of three or more levels, the other factors at the baseline.

    Not over rates: a rate of 0 is no cap at all, so rates are names of levels rather than amounts.
    """
    here = tested
    for other in factors:
        if other != factor:
            here = here[here[other] == base[other].iloc[0]]
    amounts = pd.api.types.is_numeric_dtype(here[factor]) and not factor.endswith("_mbit")
    if not amounts or here[factor].nunique() < 3:
        return None
    return slope(here[factor].to_numpy(dtype=float), here.value.to_numpy(dtype=float))


def strata(samples: pd.DataFrame) -> Strata:
    """Samples by block and, for probes, by the pair of hosts between which they were taken."""
    keys = list(zip(samples.block, samples.src, samples.dst, strict=True))
    values = samples.value.to_numpy(dtype=float)
    return {key: values[[other == key for other in keys]] for key in sorted(set(keys))}


def _paired(samples: Strata, base: Strata, how: Callable[[Any, Any], Any]) -> Interval:
    """``how`` of the two medians per stratum; without a common one all samples meet all of the baseline's."""
    common = sorted(set(samples) & set(base))
    if not common:
        samples, base = ({0: np.concatenate(list(each.values()))} for each in (samples, base))
        common = [0]
    data = [array for block in common for array in (samples[block], base[block])]

    def statistic(*drawn: Values, axis: int = -1) -> Any:
        medians = [np.median(array, axis=axis) for array in drawn]
        pairs = zip(medians[::2], medians[1::2], strict=True)
        return np.mean([how(a, b) for a, b in pairs], axis=0)

    return bootstrap(data, statistic)


def bootstrap(data: list[Values], statistic: Callable[..., Any]) -> Interval:
    """A statistic of samples with its interval, which it lacks where one of them has too few values."""
    value = float(statistic(*data))
    if min(len(sample) for sample in data) < 2 or not math.isfinite(value):
        return Interval(value)
    from scipy.stats import bootstrap  # a second of imports, which most commands do without

    found = bootstrap(
        data,
        statistic,
        vectorized=True,
        method="percentile",
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    # between equal samples the percentiles are interpolated, and rounded
    return Interval(value, min(value, float(found.low)), max(value, float(found.high)))
