"""Why the cells of one run differ from their baselines."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dasklab.breakdown.answers.summary import Summary
from dasklab.breakdown.model.causes import Bottleneck
from dasklab.breakdown.show.explain import Explained, summarise_cells
from dasklab.comparison.causes import PathSeconds, causes
from dasklab.comparison.comparison import Causes
from dasklab.comparison.difference import Difference
from dasklab.results.run import Run, Trial
from dasklab.results.statistics.answer import Answer
from dasklab.results.statistics.inference import ALPHA, Estimate, Fit, holm


@dataclass(frozen=True)
class PathRow:
    """A valid trial: its cell, its block, and the critical path of its repeats.

    The null trial is one of the baseline's.
    """

    cell: Hashable
    block: Hashable
    path: PathSeconds


@dataclass(frozen=True)
class RecordedCells:
    """What was recorded of the valid trials of one run.

    Attributes:
        summaries: the mean breakdown of each cell, the baseline first.
    """

    summaries: Mapping[str, Summary]
    rows: Sequence[PathRow]

    @classmethod
    def of(cls, run: Run, trials: Iterable[tuple[Trial, Explained]]) -> RecordedCells:
        """Sum up the trials of a run."""
        trials = list(trials)
        rows = [
            PathRow(trial.requested.cell, trial.requested.block, PathSeconds.of(explained.summary))
            for trial, explained in trials
            if trial.is_valid
        ]
        return cls(summarise_cells(run, trials), rows)


def difference(rows: Sequence[PathRow], new: Hashable, old: Hashable, bottleneck: Bottleneck) -> Estimate:
    """Return how the seconds of a bottleneck differ between two cells."""
    return _difference(rows, [row.path.seconds(bottleneck) for row in rows], new, old)


def causes_of_cells(recorded: RecordedCells, time: Answer | None) -> dict[str, Causes]:
    """Return why each cell differs from the baseline of its kind; nothing is shown for the null trial.

    Args:
        time: the answer for the time to compute; without it the trials' own lengths are compared.
    """
    summaries, rows = recorded.summaries, recorded.rows
    first, *others = summaries
    baselines = {name: _baseline(name, first, time) for name in others}
    pairs = {name: own for name, own in baselines.items() if own in summaries and own != name}
    measured = {name for name in pairs if any(row.cell == name for row in rows)}
    is_shown = _shown_times(rows, {name: pairs[name] for name in measured}, time)
    causes_by_cell = {}
    for name, own in pairs.items():
        estimate = partial(difference, rows, name, own) if name in measured else _of_null_trial
        causes_by_cell[name] = causes(
            Difference(summaries[own], summaries[name]),
            estimate,
            is_shown.get(name, False),
        )
    return causes_by_cell


def _of_null_trial(_: Bottleneck) -> Estimate:
    """Return no estimate: the null trial belongs to the baseline's cell."""
    return Estimate(0.0)


def _baseline(name: str, first: str, time: Answer | None) -> str:
    cell = time.cell(name) if time else None
    return time.baseline(cell).name if time and cell else first


def _shown_times(
    rows: Sequence[PathRow], pairs: Mapping[str, str], time: Answer | None
) -> dict[str, bool | None]:
    """Return whether each cell's time differs by more than chance explains; None if nothing says so."""
    if time:
        return {cell.name: cell.is_shown if math.isfinite(cell.least) else None for cell in time.cells}
    lengths = [math.log(row.path.length_s) for row in rows]
    estimates = [_difference(rows, lengths, name, own) for name, own in pairs.items()]
    p_values = holm([estimate.p_value for estimate in estimates])
    return {
        name: p_value < ALPHA if estimate.has_error else None
        for name, estimate, p_value in zip(pairs, estimates, p_values, strict=True)
    }


def _difference(rows: Sequence[PathRow], values: Sequence[float], new: Hashable, old: Hashable) -> Estimate:
    fit = Fit([row.cell for row in rows], [row.block for row in rows], np.array(values))
    return fit.difference(new, old)
