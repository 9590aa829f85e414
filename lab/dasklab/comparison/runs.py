"""Compare two runs: may they be compared, and what changed between them?

Absolute times mean nothing across machines or versions. Two runs are comparable if what computed was the same
(``identity``); the user may overrule that by name. How much a trial varies is estimated from the trials of
both runs (``inference``). How much one day differs from another cannot be estimated from two of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import pandas as pd
from pydantic import Field

from dasklab.errors import LabError
from dasklab.model.forms.json_output import Number
from dasklab.model.settings.metric import METRICS
from dasklab.results.run import Run
from dasklab.results.statistics.identity import identity
from dasklab.results.statistics.inference import ALPHA, Estimate, Fit, holm
from dasklab.results.statistics.interval import Interval
from dasklab.results.statistics.scale import Scale, exp, has_ratios, level
from dasklab.results.table import table


@dataclass(frozen=True)
class CellChange:
    """One cell's metric in two runs, and new over old.

    ``is_shown`` means that chance explains the difference in fewer than one of 20 tables as long as this one.
    """

    metric: str
    cell: str
    old: Number
    new: Number
    ratio: Annotated[Interval, Field(description="New over old.")]
    is_shown: bool


def compare(old: Run, new: Run, anyway: bool = False) -> list[CellChange]:
    """Compare every cell and metric that both runs have, valid trials only.

    Args:
        old: a run.
        new: another run.
        anyway: compare runs that are not comparable.

    Raises:
        LabError: the runs are not comparable, or have nothing in common.
    """
    if not anyway and (reasons := differences(old, new)):
        raise LabError(
            f"not comparable: {'; '.join(reasons)}", "dasklab results compare --anyway if you mean it"
        )
    frames = [_valid(table(run)) for run in (old, new)]
    keys = [set(zip(frame.metric, frame.cell, strict=True)) for frame in frames]
    common = sorted(keys[0] & keys[1])
    if not common:
        raise LabError(f"{old.folder} and {new.folder} have no valid cell in common")
    metrics = dict.fromkeys(metric for metric, _ in common)
    rows = [row for metric in metrics for row in _changes(frames, metric, common)]
    corrected = holm([estimate.p_value for _, estimate in rows])
    return [
        replace(change, is_shown=p_value < ALPHA)
        for (change, _), p_value in zip(rows, corrected, strict=True)
    ]


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
