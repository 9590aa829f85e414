"""The scale of the statistics: one value per trial, as a logarithm where ratios make sense, and back to
units.

A trial's value is the median of its repeats. A trial has probes between several pairs of hosts, and not every
trial probes the same pairs; so each pair's median is taken relative to what the baseline measured between the
same two hosts, and the trial's value is the mean over its pairs. Where all samples are above 0, values are
logarithms and differences are ratios.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dasklab.results.statistics.inference import Estimate
from dasklab.results.statistics.interval import Interval

TRIAL = ["run", "block", "cell", "null"]  # the columns that identify a trial
PAIR = ["src", "dst"]
LARGEST = 700.0  # the exponential of a larger number is not a float


@dataclass(frozen=True)
class Scale:
    """Whether values are logarithms, and what the baseline measured between each pair of hosts."""

    log: bool
    reference: pd.Series

    @classmethod
    def of(cls, base: pd.DataFrame, log: bool) -> Scale:
        """Build the scale for all trials that are compared with the baseline, whose samples are ``base``."""
        medians = _medians(base)
        values = np.log(medians) if log else medians
        return cls(log, values.groupby(PAIR).mean())

    def values(self, samples: pd.DataFrame) -> pd.DataFrame:
        """Return one row per trial: the columns of ``TRIAL``, ``value``, and the value's ``reference``."""
        medians = _medians(samples)
        rows = (np.log(medians) if self.log else medians).reset_index(name="value")
        rows = rows.merge(self.reference.rename("reference").reset_index(), on=PAIR, how="left")
        if rows.reference.notna().any():
            rows = rows[rows.reference.notna()]
        else:  # the baseline probed other pairs only: compare with the mean of them all
            rows["reference"] = self.reference.mean()
        rows["value"] -= rows.reference
        return rows.groupby(TRIAL, as_index=False, sort=False)[["value", "reference"]].mean()


def has_ratios(samples: pd.DataFrame, zero_based: bool) -> bool:
    """Whether ratios of these samples make sense: not if a trial measured none of the quantity."""
    return not zero_based and bool((_medians(samples) > 0).all())


def level(estimate: Estimate, reference: float, log: bool) -> Interval:
    """Return a cell's own level in the metric's unit."""
    value = reference + estimate.value
    ends = (value, value - estimate.margin, value + estimate.margin)
    return Interval(*map(exp, ends)) if log else Interval(*ends)


def difference(estimate: Estimate, base: float, log: bool) -> Interval:
    """Return a difference in the metric's unit, from a baseline of the level ``base``."""
    ends = (estimate.value, estimate.value - estimate.margin, estimate.value + estimate.margin)
    return Interval(*(base * (exp(end) - 1) for end in ends)) if log else Interval(*ends)


def exp(value: float) -> float:
    """Return the exponential; infinity if it is too large for a float."""
    return math.exp(value) if value < LARGEST or math.isnan(value) else math.inf


def _medians(samples: pd.DataFrame) -> pd.Series:
    """Return the median of each trial's samples, for each pair of hosts."""
    runs = samples if "run" in samples else samples.assign(run="")
    return runs.groupby([*TRIAL, *PAIR], sort=False).value.median()
