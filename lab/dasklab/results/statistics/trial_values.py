"""Reduce samples to one value per trial, the unit of all statistics (see ``inference``).

A trial's value is the median of its runs. A trial has probes between several pairs of hosts, and not each
trial probes the same pairs; so each pair's median is taken relative to what the baseline measured between the
same two hosts, and the trial's value is the mean over its pairs. Where all values are above 0, values are
logarithms and differences are ratios.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

PLACE = ["run", "block", "cell", "null"]  # what names a trial
PAIR = ["src", "dst"]


@dataclass(frozen=True)
class Scale:
    """Whether values are logarithms, and what the baseline measured between each pair of hosts."""

    log: bool
    reference: pd.Series

    @classmethod
    def of(cls, base: pd.DataFrame, log: bool) -> Scale:
        """The scale of all trials that are compared with the baseline, whose samples are ``base``."""
        medians = _medians(base)
        values = np.log(medians) if log else medians
        return cls(log, values.groupby(PAIR).mean())

    def values(self, samples: pd.DataFrame) -> pd.DataFrame:
        """A row per trial: its place, its ``value`` relative to the ``reference``, and that."""
        medians = _medians(samples)
        rows = (np.log(medians) if self.log else medians).reset_index(name="value")
        known = rows.merge(self.reference.rename("reference").reset_index(), on=PAIR, how="left")
        if known.reference.notna().any():
            known = known[known.reference.notna()]
        else:  # no pair in common: all that was measured meets all of the baseline's
            known["reference"] = self.reference.mean()
        known["value"] -= known.reference
        return known.groupby(PLACE, as_index=False, sort=False)[["value", "reference"]].mean()


def is_scaled(samples: pd.DataFrame, zero_based: bool) -> bool:
    """Do ratios of these samples make sense? Not where a trial has none of what is measured."""
    return not zero_based and bool((_medians(samples) > 0).all())


def _medians(samples: pd.DataFrame) -> pd.Series:
    """The median of each trial's samples, for each pair of hosts."""
    placed = samples if "run" in samples else samples.assign(run="")
    return placed.groupby([*PLACE, *PAIR], sort=False).value.median()
