"""Which results moved: from the task that made one, through the transfer of it, to the dependent task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dasklab.breakdown.model.arrays import NONE, Codes
from dasklab.breakdown.model.repeat import Repeat


@dataclass(frozen=True)
class Arrows:
    """Pairs of rows, each pair once. ``into``: task to fetch; ``out``: fetch to dependent task."""

    into: list[tuple[int, int]]
    out: list[tuple[int, int]]


def arrows(repeat: Repeat) -> Arrows:
    """Return the arrows of all needs for which a fetch brought data in time."""
    moved = repeat.need_fetch != NONE
    fetch, dependent = repeat.need_fetch[moved], repeat.needs.task[moved]
    source = repeat.need_source[moved]
    computed = source != NONE  # or the client sent the data
    return Arrows(_distinct(source[computed], fetch[computed]), _distinct(fetch, dependent))


def _distinct(first: Codes, second: Codes) -> list[tuple[int, int]]:
    pairs = np.unique(np.column_stack([first, second]), axis=0)
    return [(int(a), int(b)) for a, b in pairs.tolist()]
