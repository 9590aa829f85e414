"""How much slower does each cell get as the links do: the slope of its time over 1/rate, an amount of data.

A run that waits for its links takes ``t = a + b / rate``. What ``b`` is, seconds times bits a second, are
bits: as if so much had to pass the slowest link while nothing else goes on. Unlike seconds, that may be set
side by side for programs that compute at different speeds. No cap counts as a rate of infinity. A trial is
one point, without what its block adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasklab.results.statistics.inference import Fit
from dasklab.results.statistics.measures import Interval, slope
from dasklab.results.statistics.trial_values import Scale

RATE = "_mbit"  # what the name of a factor of rates ends with
BITS = 8


@dataclass(frozen=True)
class Slope:
    """Of the cells that share all levels but the rate's: megabytes, and the rates that it is of, 0 no cap."""

    name: str
    rates_mbit: tuple[float, ...]
    waited_mb: Interval


def slopes(frame: pd.DataFrame, factors: Sequence[str]) -> list[Slope]:
    """Theil-Sen's slope for each combination of the other levels; none without a factor of rates."""
    rate = next((factor for factor in factors if factor.endswith(RATE)), None)
    if rate is None or not pd.api.types.is_numeric_dtype(frame[rate]):
        return []
    counted = frame.metric.eq("compute_s") & ~frame.warmup & ~frame.null & frame.status.eq("ok")
    return list(_slopes(frame[counted], rate, [factor for factor in factors if factor != rate]))


def _slopes(runs: pd.DataFrame, rate: str, others: list[str]) -> Iterator[Slope]:
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
            per = np.divide(1.0, rates, out=np.zeros_like(rates), where=rates > 0)
            blocks = list(zip(trials.run, trials.block, strict=True))
            drift = Fit(list(trials.cell), blocks, trials.value.to_numpy()).drift
            seconds = np.exp((trials.value + trials.reference).to_numpy() - drift + drift.mean())
            found = slope(per, seconds)  # s over 1/(Mbit/s), which is Mbit
            waited = Interval(found.value / BITS, found.low / BITS, found.high / BITS)
            yield Slope(name, tuple(sorted(set(rates))), waited)
