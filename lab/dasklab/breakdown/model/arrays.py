"""Columns of numbers, and joins and running extremes over them: a repeat has millions of rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Mask = npt.NDArray[np.bool_]
NONE = -1
"""Stands for no row and no code, in every column of rows or codes."""


def last_before(owner: Codes, time: Floats, query: Codes, bound: Floats) -> Codes:
    """Find for each question the latest entry of the same owner that is not later than its bound.

    Args:
        owner, time: the entries; times in seconds, NaN for an entry that never matches.
        query, bound: the questions: an owner, and a time; NaN for the latest entry of all.

    Returns:
        Positions in ``owner``; ``NONE`` where there is no such entry.
    """
    entries = np.flatnonzero(~np.isnan(time))
    if not len(entries) or not len(query):
        return np.full(len(query), NONE)
    owners, group = np.unique(owner[entries], return_inverse=True)
    base = time[entries].min()
    places = _on_axis(group, time[entries] - base)
    order = np.argsort(places, kind="stable")
    group_of_query = np.searchsorted(owners, query)
    exists = (group_of_query < len(owners)) & (owners[np.minimum(group_of_query, len(owners) - 1)] == query)
    latest = np.where(np.isnan(bound), np.inf, bound - base)
    at = np.searchsorted(places[order], _on_axis(group_of_query, latest), side="right") - 1
    match = order[np.maximum(at, 0)]
    valid = exists & (at >= 0) & (group[match] == np.minimum(group_of_query, len(owners) - 1))
    return np.where(valid, entries[match], NONE)


def positions(keys: pd.Index[str], names: pd.Series[str] | npt.NDArray[np.object_]) -> Codes:
    """Return the position of each name in an index; ``NONE`` where it is not there."""
    return np.asarray(keys.get_indexer(pd.Index(names, dtype=object)), np.int64)


def floats(column: pd.Series[float]) -> Floats:
    return np.asarray(column, np.float64)


AXIS_US = 1 << 40  # twelve days: longer than any record


def _on_axis(group: Codes, seconds: Floats) -> Codes:
    """Return positions on one axis of integers, to the microsecond, a stretch for each group."""
    micros = np.clip(np.where(np.isinf(seconds), AXIS_US, seconds * 1e6), -1, AXIS_US - 1)
    return np.asarray(group.astype(np.int64) * (AXIS_US + 1) + np.rint(micros).astype(np.int64), np.int64)


def pairs(owner: Codes, query: Codes) -> tuple[Codes, Codes]:
    """Return all pairs of a question and an entry of its owner: positions in ``query`` and in ``owner``."""
    order = np.argsort(owner, kind="stable")
    start = np.searchsorted(owner[order], query)
    stop = np.searchsorted(owner[order], query, side="right")
    question, position = expand(start, stop)
    return question, order[position]


def distinct(values: Codes) -> Codes:
    """Return the distinct values, sorted. ``np.unique`` hashes, which takes several times as long."""
    values = np.sort(values)
    is_new = np.append(True, values[1:] != values[:-1])[: len(values)]
    return np.asarray(values[is_new], np.int64)


def expand(start: Codes, stop: Codes) -> tuple[Codes, Codes]:
    """Return for each range ``start[i]:stop[i]`` all its members: ``i`` and the member."""
    counts = np.maximum(stop - start, 0)
    row = np.repeat(np.arange(len(start)), counts)
    member = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(start, counts)
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
