"""From the tidy table of samples to the answer of an experiment: cells compared with their baselines.

Cells are compared inside each block, with one value per trial (``scale``). ``inference`` explains the model,
its intervals and when a difference is shown. Slopes over a factor are Theil-Sen's, over trials. A simulated
sample also has a prediction error: intervals of cells and of differences are widened by it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from dasklab.model.experiments.trial import NULL_TRIAL
from dasklab.model.settings.metric import METRICS
from dasklab.results.statistics import scale
from dasklab.results.statistics.answer import Answer, Cell
from dasklab.results.statistics.inference import ALPHA, Estimate, Fit
from dasklab.results.statistics.interval import Interval
from dasklab.results.statistics.scale import Scale, has_ratios
from dasklab.results.statistics.theil_sen import slope

ENGINE = "engine"  # the factor that decides what computes
MAIN_SHARE = (
    0.8  # of the error rate, for the first metric, the experiment's answer; the others share the rest
)


def error_rates(metrics: Sequence[str]) -> dict[str, float]:
    """Divide ``ALPHA`` among the metrics: the chance that an experiment without differences shows one."""
    if len(metrics) < 2:
        return dict.fromkeys(metrics, ALPHA)
    rest = (1 - MAIN_SHARE) * ALPHA / (len(metrics) - 1)
    return {metric: MAIN_SHARE * ALPHA if place == 0 else rest for place, metric in enumerate(metrics)}


def answers(frame: pd.DataFrame, metrics: Sequence[str]) -> dict[str, Answer | None]:
    """Return the answer for each of an experiment's metrics, the main one first; None without a baseline.

    Args:
        frame: the table of samples; ``frame.attrs["factors"]`` are the factors' columns.
        metrics: names of metrics.
    """
    factors = frame.attrs["factors"]
    return {metric: answer(frame, metric, factors, rate) for metric, rate in error_rates(metrics).items()}


def answer(frame: pd.DataFrame, metric: str, factors: Sequence[str], alpha: float = ALPHA) -> Answer | None:
    """Compare every cell of one metric with its baseline; None if there is no baseline.

    Args:
        frame: the table of samples.
        metric: the metric's name.
        factors: the factors' columns.
        alpha: the chance that any difference is shown where there is none.
    """
    valid = valid_samples(frame, metric)
    base = valid[valid.baseline]
    if base.empty:
        return None
    cells = valid[~valid.null]
    first = base.cell.iloc[0]
    names = [first, *(name for name in cells.cell.unique() if name != first)]
    kinds = tuple(factor for factor in factors if _decides_kind(cells, factor))
    baselines = {name: _baseline_of(cells, name, base, kinds, factors) for name in names}
    guests = _separate_guests(frame.attrs.get("guests", {}), names)
    baselines |= {
        name: _first_alike(cells, name, guests, kinds) for name in guests if guests[name] != guests[first]
    }
    trials = _trials(valid, baselines, metric)
    fit = Fit(list(trials.frame.cell), list(trials.frame.stratum), trials.frame.value.to_numpy())
    trials.frame["drift"] = fit.drift
    pairs = [(name, own) for name, own in baselines.items() if own not in (None, name)]
    thresholds = dict(zip((name for name, _ in pairs), fit.thresholds(pairs, alpha), strict=True))
    rows = [
        replace(
            _row(cells[cells.cell == name], own, trials, fit, thresholds.get(name, math.nan), factors),
            guests=guests.get(name, ""),
        )
        for name, own in baselines.items()
    ]
    slopes = {factor: _slope(cells, trials, base, factor, factors) for factor in factors}
    return Answer(
        metric=metric,
        kinds=kinds,
        cells=rows,
        null=_null_difference(trials, first, rows[0].median.value),
        slopes={factor: slope for factor, slope in slopes.items() if slope},
        blocks=trials.frame[["run", "block"]].drop_duplicates().shape[0],
        fit=fit,
    )


def valid_samples(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the samples of valid trials, without warm-ups and without probes of unchanged links."""
    return frame[(frame.metric == metric) & ~frame.warmup & frame.status.eq("ok") & frame.tested]


@dataclass(frozen=True)
class _Trials:
    """One row per trial; ``stratum`` names the trials that it is compared with."""

    metric: str
    log: bool
    frame: pd.DataFrame

    def reference(self, cell: str) -> float:
        """What the baseline measured between the pairs of hosts that this cell's trials probed."""
        return float(self.frame[self.frame.cell == cell].reference.mean())


def _decides_kind(cells: pd.DataFrame, factor: str) -> bool:
    """Whether a factor decides what is computed, or by which engine."""
    workloads = cells.groupby(factor).workload.nunique()
    return factor == ENGINE or (cells.workload.nunique() > 1 and workloads.max() == 1)


def _baseline_of(
    cells: pd.DataFrame, name: str, base: pd.DataFrame, kinds: Sequence[str], factors: Sequence[str]
) -> str | None:
    """Return the measured cell of the same kind with all other factors at the baseline's levels."""
    own, alike = cells[cells.cell == name], cells
    for factor in factors:
        alike = alike[alike[factor] == (own if factor in kinds else base)[factor].iloc[0]]
    return None if alike.empty else str(alike.cell.iloc[0])


def _separate_guests(guests: Mapping[str, str], measured: Sequence[str]) -> dict[str, str]:
    """Return the kind of guest of each measured cell if kinds are not compared with each other; else nothing.

    That is so where a factor varies other things in several kinds, such as models of NICs. An experiment with
    one cell of each kind asks how the kinds differ.
    """
    own = {name: guests[name] for name in guests if name in measured}
    kinds = Counter(own.values())
    return own if len(kinds) > 1 and "" not in kinds and min(kinds.values()) > 1 else {}


def _first_alike(cells: pd.DataFrame, name: str, guests: Mapping[str, str], kinds: Sequence[str]) -> str:
    """Return the first cell of the experiment's file with the same kind of guest that computes the same."""

    def computes(cell: str) -> list[object]:
        return [cells[cells.cell == cell][factor].iloc[0] for factor in kinds]

    alike = (other for other in guests if guests[other] == guests[name] and computes(other) == computes(name))
    return next(alike)


def _trials(valid: pd.DataFrame, baselines: Mapping[str, str | None], metric: str) -> _Trials:
    """Return one value per trial, relative to the baseline of its kind."""
    log = has_ratios(valid, METRICS[metric].zero_based)
    parts = []
    for own in dict.fromkeys(own or name for name, own in baselines.items()):
        names = [name for name, base in baselines.items() if (base or name) == own]
        samples = valid[valid.cell.isin(names)]
        rows = Scale.of(samples[samples.cell == own], log).values(samples)
        rows["stratum"] = list(zip([own] * len(rows), rows.run, rows.block, strict=True))
        parts.append(rows)
    return _Trials(metric, log, pd.concat(parts, ignore_index=True))


def _null_difference(trials: _Trials, first: str, base: float) -> Interval | None:
    """Return the difference of the null trial from the baseline, as if it were a cell of its own."""
    rows = trials.frame
    if not rows.null.any():
        return None
    cells = [NULL_TRIAL if null else cell for null, cell in zip(rows.null, rows.cell, strict=True)]
    if first not in cells:
        return None
    fit = Fit(cells, list(rows.stratum), rows.value.to_numpy())
    return scale.difference(fit.difference(NULL_TRIAL, first), base, trials.log)


def _row(
    samples: pd.DataFrame,
    own: str | None,
    trials: _Trials,
    fit: Fit,
    threshold: float,
    factors: Sequence[str],
) -> Cell:
    """Return the row of one cell; ``own`` is the cell that it is compared with."""
    name = str(samples.cell.iloc[0])
    values = samples.value.to_numpy(dtype=float)
    prediction_error = float(samples.prediction_error.max())
    reference = trials.reference(name)
    middle = scale.level(fit.mean(name), reference, trials.log)
    is_base = name == own
    difference = ratio = Interval(math.nan)
    least, beyond = math.nan, False
    if own is not None:
        estimate = Estimate(0.0) if is_base else fit.difference(name, own)
        base = scale.level(fit.mean(own), reference, trials.log).value
        difference = scale.difference(estimate, base, trials.log)
        least = scale.difference(Estimate(threshold), base, trials.log).value
        ratio = _ratio(difference, base, is_base, METRICS[trials.metric].zero_based)
        beyond = not is_base and abs(estimate.value) > threshold
    share = prediction_error / (1 + prediction_error)
    difference = Interval(
        difference.value,
        difference.low - middle.value * share,
        difference.high + middle.value * prediction_error,
    )
    return Cell(
        name=name,
        factors={factor: samples[factor].iloc[0] for factor in factors},
        baseline=is_base,
        guests="",
        n=len(values),
        trials=int(((trials.frame.cell == name) & ~trials.frame.null).sum()),
        median=middle.widened(prediction_error),
        mean=float(values.mean()),
        lowest=float(values.min()),
        highest=float(values.max()),
        difference=difference,
        ratio=ratio if is_base else ratio.widened(prediction_error),
        least=least,
        is_shown=beyond and difference.excludes(0),
    )


def _ratio(difference: Interval, base: float, is_base: bool, zero_based: bool) -> Interval:
    if zero_based or base == 0:
        return Interval(math.nan)
    if is_base:
        return Interval(1.0)
    return Interval(*(1 + end / base for end in (difference.value, difference.low, difference.high)))


def _slope(
    cells: pd.DataFrame, trials: _Trials, base: pd.DataFrame, factor: str, factors: Sequence[str]
) -> Interval | None:
    """Return the slope over a numeric factor of three or more levels, with the other factors at the baseline.

    Rates have no slope: a rate of 0 is no cap, so rates are names of levels rather than amounts.
    """
    along = cells
    for other in factors:
        if other != factor:
            along = along[along[other] == base[other].iloc[0]]
    is_amount = pd.api.types.is_numeric_dtype(along[factor]) and not factor.endswith("_mbit")
    if not is_amount or along[factor].nunique() < 3:
        return None
    levels = dict(zip(along.cell, along[factor].astype(float), strict=True))
    rows = trials.frame[trials.frame.cell.isin(list(levels)) & ~trials.frame.null]
    without_drift = rows.value + rows.reference - rows.drift + rows.drift.mean()
    values = np.exp(without_drift) if trials.log else without_drift
    return slope(rows.cell.map(levels).to_numpy(dtype=float), values.to_numpy(dtype=float))
