"""The cells of an experiment: every combination of one level of each factor. The first is the baseline."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from dasklab.model.experiments.experiment import Experiment
from dasklab.model.settings.trial_settings import Scalar

Cell = tuple[Scalar, ...]  # a level of each factor, in the order of the factors


def cells(experiment: Experiment) -> list[Cell]:
    """Return all cells in the order of the experiment's file."""
    return list(itertools.product(*(factor.overrides() for factor in experiment.factors.values())))


def levels_of(experiment: Experiment, cell: Cell) -> dict[str, Scalar]:
    """Map each factor to its level in this cell."""
    return dict(zip(experiment.factors, cell, strict=True))


def cell_name(levels: Mapping[str, Any]) -> str:
    """Return ``delay_ms=50`` or ``rate_mbit=100,delay_ms=50``; ``baseline`` without factors."""
    return ",".join(f"{factor}={level}" for factor, level in levels.items()) or "baseline"


def cell_names(experiment: Experiment) -> list[str]:
    """Return the names of all cells."""
    return [cell_name(levels_of(experiment, cell)) for cell in cells(experiment)]
