"""The answer of an experiment for one metric: a row for each cell, and what the null trial shows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, computed_field

from dasklab.results.statistics.inference import Fit
from dasklab.results.statistics.interval import Interval


@dataclass(frozen=True)
class Cell:
    """The samples of one cell, compared with the baseline of its kind.

    Attributes:
        name: ``delay_ms=50``.
        factors: the level of each factor.
        baseline: whether the cell is a baseline itself.
        guests: the kind of guest, where each kind has a baseline of its own; else empty.
        trials: the number of trials that the samples are from.
        median: the cell's level, with its interval.
        ratio: NaN where ratios make no sense.
        least: the smallest difference that would be shown, in the metric's unit.
        is_shown: the verdict: the difference is larger than chance makes any of the experiment's comparisons.
    """

    name: Annotated[str, Field(alias="cell")]
    factors: dict[str, object]
    baseline: Annotated[bool, Field(exclude=True)]
    guests: Annotated[str, Field(exclude=True)]
    n: Annotated[int, Field(description="Samples.")]
    trials: int
    median: Interval
    mean: Annotated[float, Field(exclude=True)]
    lowest: Annotated[float, Field(exclude=True)]
    highest: Annotated[float, Field(exclude=True)]
    difference: Annotated[Interval, Field(description="From the baseline, in the metric's unit.")]
    ratio: Annotated[Interval, Field(description="To the baseline.")]
    least: Annotated[float, Field(exclude=True)]
    is_shown: Annotated[bool, Field(exclude=True)]

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know that this keeps the property
    @property
    def verdict(self) -> Literal["baseline", "shown", "not shown"]:
        """What a table says about the difference."""
        if self.baseline:
            return "baseline"
        return "shown" if self.is_shown else "not shown"


@dataclass(frozen=True)
class Answer:
    """What one metric says about an experiment's cells; the first cell is the baseline.

    Attributes:
        metric: the metric's name.
        kinds: the factors that decide what is computed, or by which engine. Only like is compared with like:
            each kind has its own baseline, with all other factors at the baseline's levels. So has each kind
            of guest, if a factor varies other things in several of them.
        cells: one row per cell.
        null: the difference of the null trial from the baseline.
        slopes: the slope over each factor with three or more numeric levels.
        blocks: the number of blocks that the trials are from.
        fit: the statistical model of all trials.
    """

    metric: str
    kinds: tuple[str, ...]
    cells: list[Cell]
    null: Interval | None
    slopes: dict[str, Interval]
    blocks: int = 1
    fit: Fit | None = field(default=None, repr=False, compare=False)

    @property
    def scaled(self) -> bool:
        """Whether ratios to the baseline make sense. They do not if the baseline is almost 0."""
        return math.isfinite(self.cells[0].ratio.value)

    @property
    def noise_floor(self) -> float:
        """The smallest difference from the baseline that would be shown; NaN if none could be."""
        least = [cell.least for cell in self.cells if not cell.baseline and math.isfinite(cell.least)]
        return float(np.median(least)) if least else math.nan

    def cell(self, name: str) -> Cell | None:
        """Return the cell of that name; None if it was not measured."""
        return next((cell for cell in self.cells if cell.name == name), None)

    def baseline(self, cell: Cell) -> Cell:
        """Return the baseline that a cell is compared with."""
        alike = (row for row in self.cells if row.baseline and self._kind(row) == self._kind(cell))
        return next(alike, self.cells[0])

    def _kind(self, cell: Cell) -> list[object]:
        return [cell.guests, *(cell.factors[factor] for factor in self.kinds)]
