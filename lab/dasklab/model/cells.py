"""An experiment's cells: every combination of a level of each factor. The first is the baseline."""

from __future__ import annotations

import itertools
from typing import Any

from dasklab.model.experiment import Experiment, Scalar

Cell = tuple[Scalar, ...]  # a level of each factor, in the factors' order


def cells(experiment: Experiment) -> list[Cell]:
    """All cells, in the file's order."""
    return list(itertools.product(*(factor.overrides() for factor in experiment.factors.values())))


def factors(experiment: Experiment, cell: Cell) -> dict[str, Scalar]:
    """Factor -> level."""
    return dict(zip(experiment.factors, cell, strict=True))


def cell_name(levels: dict[str, Any]) -> str:
    """How a cell is called: ``delay_ms=50``, ``rate_mbit=100,delay_ms=50``; without factors ``baseline``."""
    return ",".join(f"{factor}={level}" for factor, level in levels.items()) or "baseline"


def names(experiment: Experiment) -> list[str]:
    """The names of all cells."""
    return [cell_name(factors(experiment, cell)) for cell in cells(experiment)]
