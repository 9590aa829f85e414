"""Kinds of tasks whose names tell which operation of a collection they belong to."""

from __future__ import annotations

import re

import numpy as np

from dasklab.breakdown.answers.advice.rules import Measurements
from dasklab.breakdown.model.arrays import Mask
from dasklab.breakdown.model.repeat import PEER_TO_PEER

REDUCTION = re.compile(r"-tree$|^(series|dataframe)-groupby-.*-agg|-groupby-agg")
"""The last steps of a data frame's reduction, such as a groupby with its groups in one partition."""

TASK_SHUFFLE = re.compile(r"taskshuffle")
TASK_RECHUNK = re.compile(r"^rechunk-(merge|split)(?!.*(transfer|p2p))")
OVERLAP = re.compile(r"overlap")


def kind_of(case: Measurements, row: int) -> str:
    """Return what a task computes."""
    return str(case.repeat.prefixes[case.repeat.tasks.key[row]])


def is_of_collection(kind: str) -> bool:
    """Return whether nobody can split a task of this kind: a collection made it."""
    return any(pattern.search(kind) for pattern in (REDUCTION, TASK_RECHUNK, PEER_TO_PEER))


def rows_of(case: Measurements, pattern: re.Pattern[str]) -> Mask:
    """Return for each task whether its kind has a name like this."""
    repeat = case.repeat
    is_like = {prefix: bool(pattern.search(prefix)) for prefix in set(repeat.prefixes)}
    of_key = np.array([is_like[prefix] for prefix in repeat.prefixes], bool)
    return of_key[repeat.tasks.key] if len(of_key) else np.zeros(0, bool)


def share_of(case: Measurements, pattern: re.Pattern[str]) -> float:
    """Return which share of the tasks has a kind with a name like this."""
    rows = rows_of(case, pattern)
    return float(rows.mean()) if len(rows) else 0.0
