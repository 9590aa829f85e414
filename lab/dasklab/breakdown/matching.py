"""Joins and running extremes over columns: what a loop over objects would do, for millions of rows."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dasklab.breakdown.intervals import Codes, Floats

NONE = -1


def last_before(owner: Codes, time: Floats, wanted: Codes, bound: Floats) -> Codes:
    """Find for each bound the latest entry of the wanted owner that is not later.

    Args:
        owner, time: the entries; times in seconds, NaN for an entry that never matches.
        wanted, bound: the questions; without a bound (NaN) the latest entry of all.

    Returns:
        Positions in ``owner``; ``NONE`` where there is no such entry.
    """
    entries = np.flatnonzero(~np.isnan(time))
    if not len(entries) or not len(wanted):
        return np.full(len(wanted), NONE)
    owners, group = np.unique(owner[entries], return_inverse=True)
    base = time[entries].min()
    places = _on_axis(group, time[entries] - base)
    order = np.argsort(places, kind="stable")
    asked = np.searchsorted(owners, wanted)
    exists = (asked < len(owners)) & (owners[np.minimum(asked, len(owners) - 1)] == wanted)
    latest = np.where(np.isnan(bound), np.inf, bound - base)
    at = np.searchsorted(places[order], _on_axis(asked, latest), side="right") - 1
    match = order[np.maximum(at, 0)]
    valid = exists & (at >= 0) & (group[match] == np.minimum(asked, len(owners) - 1))
    return np.where(valid, entries[match], NONE)


AXIS_US = 1 << 40  # twelve days: longer than any record


def _on_axis(group: Codes, seconds: Floats) -> Codes:
    """Return positions on one axis of integers, to the microsecond, a stretch for each group."""
    micros = np.clip(np.where(np.isinf(seconds), AXIS_US, seconds * 1e6), -1, AXIS_US - 1)
    return np.asarray(group.astype(np.int64) * (AXIS_US + 1) + np.rint(micros).astype(np.int64), np.int64)


def pairs(owner: Codes, wanted: Codes) -> tuple[Codes, Codes]:
    """Return all pairs of a question and an entry of its owner: positions in ``wanted`` and in ``owner``."""
    order = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[order], wanted)
    last = np.searchsorted(owner[order], wanted, side="right")
    question, position = expand(first, last)
    return question, order[position]


def expand(first: Codes, last: Codes) -> tuple[Codes, Codes]:
    """Return for each range ``first[i]:last[i]`` all its members: ``i`` and the member."""
    counts = np.maximum(last - first, 0)
    row = np.repeat(np.arange(len(first)), counts)
    member = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    return row, member


def running_max(group: Codes, values: Floats) -> Floats:
    """Return the greatest value so far, in each group."""
    return np.asarray(pd.Series(values).groupby(group).cummax(), float)


def least_before(group: Codes, values: Floats, initial: Floats) -> Floats:
    """Return the least of the initial value and all values before, in each of some contiguous groups."""
    so_far = np.asarray(pd.Series(values).groupby(group).cummin(), float)
    before = np.full(len(values), np.inf)
    before[1:] = np.where(group[1:] == group[:-1], so_far[:-1], np.inf)
    return np.asarray(np.minimum(before, initial), np.float64)
