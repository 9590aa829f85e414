"""Compare two runs: may they be compared, and what changed between them?

Absolute times mean nothing across machines or versions. Two runs are comparable if what computed was the same
(``identity``); the user may overrule that by name. How much a trial varies is estimated from the trials of
both runs (``inference``). How much one day differs from another cannot be estimated from two of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from dasklab.comparison.causes import causes
from dasklab.comparison.cells import PathRow, RecordedCells, difference
from dasklab.comparison.comparison import TIME, Causes, CellChange, Comparison, shown
from dasklab.comparison.difference import Difference
from dasklab.errors import LabError
from dasklab.model.settings.metric import METRICS
from dasklab.results.run import Run
from dasklab.results.statistics.identity import identity
from dasklab.results.statistics.inference import ALPHA, Estimate, Fit, holm
from dasklab.results.statistics.interval import Interval
from dasklab.results.statistics.scale import Scale, exp, has_ratios, level
from dasklab.results.table import table


def compare_runs(
    old: Run, new: Run, anyway: bool = False, recorded: tuple[RecordedCells, RecordedCells] | None = None
) -> Comparison:
    """Compare every cell and metric that both runs have, valid trials only.

    Args:
        old: a run.
        new: another run.
        anyway: compare runs that are not comparable.
        recorded: what was recorded of each run; without it no causes are compared.

    Raises:
        LabError: the runs are not comparable, or have nothing in common.
    """
    unlike = differences(old, new)
    if unlike and not anyway:
        raise LabError(
            f"not comparable: {'; '.join(unlike)}", "dasklab results compare --anyway if you mean it"
        )
    frames = [_valid(table(run)) for run in (old, new)]
    keys = [set(zip(frame.metric, frame.cell, strict=True)) for frame in frames]
    common = sorted(keys[0] & keys[1])
    if not common:
        raise LabError(f"{old} and {new} have no valid cell in common")
    metrics = dict.fromkeys(metric for metric, _ in common)
    rows = [row for metric in metrics for row in _changes(frames, metric, common)]
    corrected = holm([estimate.p_value for _, estimate in rows])
    changes = [
        replace(change, is_shown=p_value < ALPHA)
        for (change, _), p_value in zip(rows, corrected, strict=True)
    ]
    why = _causes(changes, *recorded) if recorded else {}
    return Comparison(changes, why, unlike)


def _causes(changes: Sequence[CellChange], old: RecordedCells, new: RecordedCells) -> dict[str, Causes]:
    """Return why the time of each cell changed that has records in both runs."""
    before, after = old.summaries, new.summaries
    rows = [
        PathRow((side, row.cell), (side, row.block), row.path)
        for side, recorded in (("old", old), ("new", new))
        for row in recorded.rows
    ]
    return {
        change.cell: causes(
            Difference(before[change.cell], after[change.cell]),
            partial(difference, rows, ("new", change.cell), ("old", change.cell)),
            shown(change),
        )
        for change in changes
        if change.metric == TIME and change.cell in before and change.cell in after
    }


def differences(old: Run, new: Run) -> list[str]:
    """Return why two runs are not comparable: ``dask 2024.8.0 and 2026.8.0``."""
    before, after = identity(old), identity(new)
    return [
        f"{key} {before.get(key)} and {after.get(key)}" for key in before if before[key] != after.get(key)
    ]


def _valid(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.status.eq("ok") & ~frame.warmup & frame.tested]


def _changes(
    frames: Sequence[pd.DataFrame], metric: str, common: Sequence[tuple[str, str]]
) -> Iterator[tuple[CellChange, Estimate]]:
    """Yield the change of each cell for one metric. The trials of both runs show how much a trial varies."""
    old, new = (frame[frame.metric == metric] for frame in frames)
    log = has_ratios(pd.concat([old, new]), METRICS[metric].zero_based)
    scale = Scale.of(old, log)
    sides = [scale.values(side).assign(side=name) for name, side in (("old", old), ("new", new))]
    trials = pd.concat(sides, ignore_index=True)
    fit = Fit(
        list(zip(trials.side, trials.cell, strict=True)),
        list(zip(trials.side, trials.run, trials.block, strict=True)),
        trials.value.to_numpy(),
    )
    for cell in (cell for other, cell in common if other == metric):
        estimate = fit.difference(("new", cell), ("old", cell))
        reference = float(trials.reference[trials.cell == cell].mean())
        before, after = (level(fit.mean((side, cell)), reference, log).value for side in ("old", "new"))
        change = CellChange(metric, cell, before, after, _ratio(estimate, before, log), is_shown=False)
        yield change, estimate


def _ratio(estimate: Estimate, before: float, log: bool) -> Interval:
    """Return new over old; NaN if old is 0."""
    ends = (estimate.value, estimate.value - estimate.margin, estimate.value + estimate.margin)
    if log:
        return Interval(*map(exp, ends))
    return Interval(*(1 + end / before for end in ends)) if before else Interval(math.nan)
