"""Which results moved: from the task that made one, through the transfer of it, to the dependent task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.model.arrays import NONE, Codes
from dasklab.breakdown.model.repeat import Repeat


@dataclass(frozen=True)
class MovedResults:
    """Pairs of rows, each pair once: of a task and a fetch of its result, of a fetch and a dependent task."""

    task_to_fetch: list[tuple[int, int]]
    fetch_to_task: list[tuple[int, int]]


def moved_results(repeat: Repeat) -> MovedResults:
    """Return the moves of all needs for which a fetch brought data in time."""
    moved = repeat.need_fetch != NONE
    fetch, dependent = repeat.need_fetch[moved], repeat.needs.task[moved]
    source = repeat.need_source[moved]
    computed = source != NONE  # or the client sent the data
    return MovedResults(_distinct(source[computed], fetch[computed]), _distinct(fetch, dependent))


def _distinct(first: Codes, second: Codes) -> list[tuple[int, int]]:
    pairs = np.unique(np.column_stack([first, second]), axis=0)
    return [(int(a), int(b)) for a, b in pairs.tolist()]
