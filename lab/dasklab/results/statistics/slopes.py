"""The slope of a cell's time over 1/rate: how much slower it gets as its links do, in MB.

A repeat that waits for its links takes ``t = a + b / rate``. ``b`` is in bits (seconds times bits per
second): the data that would have to pass the slowest link while nothing else happens. Unlike seconds, it can
be compared between programs that compute at different speeds. No cap counts as an infinite rate. Each trial
is one point, without the drift of its block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasklab.results.statistics.inference import Fit
from dasklab.results.statistics.interval import Interval
from dasklab.results.statistics.scale import Scale
from dasklab.results.statistics.theil_sen import slope

RATE_FACTOR_SUFFIX = "_mbit"
BITS = 8


@dataclass(frozen=True)
class RateSlope:
    """The slope of the cells that differ in their rate only. Among the rates, 0 is no cap."""

    name: str
    rates_mbit: tuple[float, ...]
    waited_mb: Interval


def rate_slopes(frame: pd.DataFrame, factors: Sequence[str]) -> list[RateSlope]:
    """Return a Theil-Sen slope for each combination of the other factors; none without a factor of rates."""
    rate = next((factor for factor in factors if factor.endswith(RATE_FACTOR_SUFFIX)), None)
    if rate is None or not pd.api.types.is_numeric_dtype(frame[rate]):
        return []
    valid = frame.metric.eq("compute_s") & ~frame.warmup & ~frame.null & frame.status.eq("ok")
    return list(_rate_slopes(frame[valid], rate, [factor for factor in factors if factor != rate]))


def _rate_slopes(runs: pd.DataFrame, rate: str, others: list[str]) -> Iterator[RateSlope]:
    names = pd.Series("all", runs.index)
    if others:
        names = runs[others].apply(
            lambda row: ",".join(f"{key}={level}" for key, level in row.items()), axis=1
        )
    for name in names.unique():
        samples = runs[names == name]
        rate_of = dict(zip(samples.cell, samples[rate].astype(float), strict=True))
        trials = Scale.of(samples, log=True).values(samples)
        rates = trials.cell.map(rate_of).to_numpy(dtype=float)
        if len(set(rates)) > 1:
            inverse = np.divide(1.0, rates, out=np.zeros_like(rates), where=rates > 0)
            blocks = list(zip(trials.run, trials.block, strict=True))
            drift = Fit(list(trials.cell), blocks, trials.value.to_numpy()).drift
            seconds = np.exp((trials.value + trials.reference).to_numpy() - drift + drift.mean())
            mbit = slope(inverse, seconds)  # seconds over 1/(Mbit/s) are Mbit
            waited_mb = Interval(mbit.value / BITS, mbit.low / BITS, mbit.high / BITS)
            yield RateSlope(name, tuple(sorted(set(rates))), waited_mb)
