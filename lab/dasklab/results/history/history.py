"""Chosen runs over Dask's versions: which is slower than the one before, and how sure is that.

What is kept is one table, a row per sample, in a CSV file that can be read and put under version control.
A run is kept whole or not at all; the same run again takes its own place. Runs of different accelerators are
never compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.model.experiment import Experiment
from dasklab.model.files import Timings
from dasklab.model.metric import METRICS
from dasklab.model.packages import version_key
from dasklab.results.statistics import measures
from dasklab.results.statistics.compare import accelerator
from dasklab.results.statistics.inference import ALPHA, Estimate, Fit, holm
from dasklab.results.statistics.measures import Interval
from dasklab.results.statistics.trial_values import Scale
from dasklab.results.storage import store
from dasklab.results.storage.table import load

COLUMNS = {
    "machine": "accelerator of the lab: what ran under another is not compared",
    "benchmark": "experiment and metric",
    "params": "the other levels of the cell, as JSON",
    "dask": "version that ran",
    "run": "the run's directory",
    "block": "its block; versions are compared within one, where they share one",
    "null": "a sample of the null trial: how much the same differs from itself",
    "value": "the sample",
}
NUMBERS: dict[str, type] = {"block": int, "null": bool, "value": float}  # all other columns are texts
KEY = ["machine", "benchmark", "params"]


@dataclass(frozen=True)
class Step:
    """From one version to the next that was measured; ``change`` is new over old.

    ``shown``: chance explains it in less than one of 20 histories with as many steps.
    """

    machine: str
    benchmark: str
    params: dict[str, Any]
    old: str
    new: str
    n: int
    before: Interval
    after: Interval
    change: Interval
    shown: bool

    @property
    def verdict(self) -> str:
        """In a word; more is worse for all that an experiment over versions measures."""
        if not self.shown:
            return "not shown"
        return "regression" if self.change.value > 1 else "improvement"


def read(file: Path) -> pd.DataFrame:
    """What is kept; nothing if there is no file yet.

    Raises:
        LabError: it is damaged, or no such table.
    """
    if not file.exists():
        return pd.DataFrame(columns=list(COLUMNS))
    types: dict[str, type] = {name: NUMBERS.get(name, str) for name in COLUMNS}
    try:
        frame = pd.read_csv(file, dtype=types, keep_default_na=False)
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise LabError(f"{file}: damaged, it cannot be read: {str(error).splitlines()[0]}") from error
    if list(frame) != list(COLUMNS):
        raise LabError(f"{file}: this is no history, its columns are {', '.join(map(str, frame))}")
    if wrong := [row for row, text in enumerate(frame.params, start=2) if not _is_object(text)]:
        raise LabError(f"{file}, line {wrong[0]}: damaged, params is no JSON object")
    if wrong := [row for row, value in enumerate(frame.value, start=2) if not 0 <= value < math.inf]:
        raise LabError(f"{file}, line {wrong[0]}: damaged, value must be 0 or more")
    return frame


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def need(file: Path) -> pd.DataFrame:
    """What is kept.

    Raises:
        LabError: nothing is.
    """
    found = read(file)
    if found.empty:
        raise LabError(f"{file}: nothing is kept yet", "dasklab history add RUN")
    return found


def keep(file: Path, run: Path) -> int:
    """Put a run's valid samples into the history; returns how many.

    Raises:
        LabError: it has none.
    """
    rows = pd.DataFrame(_rows(run), columns=list(COLUMNS))
    if rows.empty:
        raise LabError(f"{run}: no valid sample of a metric that its experiment names")
    old = read(file)
    kept = [frame for frame in (old[old.run != rows.run.iloc[0]], rows) if not frame.empty]
    with atomic.replaced(file) as draft:
        pd.concat(kept).to_csv(draft, index=False)
    return len(rows)


def steps(history: pd.DataFrame) -> list[Step]:
    """Each benchmark from each version to the next, oldest first; null trials tell about chance."""
    pairs = [pair for _, samples in history.groupby(KEY[:2], sort=False) for pair in _steps(samples)]
    corrected = holm([estimate.p_value for _, estimate in pairs])
    return [replace(step, shown=p_value < ALPHA) for (step, _), p_value in zip(pairs, corrected, strict=True)]


def typical(samples: pd.DataFrame) -> Interval:
    """What one version usually takes."""
    return measures.typical(samples.assign(cell="", src="", dst=""))


def _steps(samples: pd.DataFrame) -> Iterator[tuple[Step, Estimate]]:
    """One benchmark on one machine: versions are compared inside a block where they share one."""
    trials = Scale.of(_placed(samples), log=True).values(_placed(samples))
    blocks = list(zip(trials.run, trials.block, strict=True))
    fit = Fit(list(trials.cell), blocks, trials.value.to_numpy())
    reference = float(trials.reference.mean())
    for params, mine in samples[~samples.null].groupby("params", sort=False):
        for old, new in pairwise(sorted(mine.dask.unique(), key=version_key)):
            ends = (_cell(params, old), _cell(params, new))
            estimate = fit.difference(ends[1], ends[0])
            before, after = (measures.level(fit.mean(end), reference, log=True) for end in ends)
            first = mine.iloc[0]
            step = Step(
                machine=str(first.machine),
                benchmark=str(first.benchmark),
                params=json.loads(str(params)),
                old=str(old),
                new=str(new),
                n=int((mine.dask == new).sum()),
                before=before,
                after=after,
                change=measures.level(estimate, 0.0, log=True),
                shown=False,
            )
            yield step, estimate


def _placed(samples: pd.DataFrame) -> pd.DataFrame:
    cells = [_cell(params, dask) for params, dask in zip(samples.params, samples.dask, strict=True)]
    return samples.assign(cell=cells, src="", dst="")


def _cell(params: object, dask: object) -> str:
    return f"{params} {dask}"


def _rows(run: Path) -> Iterator[dict[str, Any]]:
    """A run's samples: valid, no warm-ups, of metrics of which more is worse and ratios say something."""
    begun = store.read_run(run)
    experiment = store.experiment(begun)
    frame = load(run)
    versions = {directory.name: _version(directory) for directory in store.finished(run)}
    factors = [name for name in frame.attrs["factors"] if not _sets_packages(experiment, name)]
    named = [metric for metric in experiment.metrics if not METRICS[metric].zero_based]
    valid = frame[frame.status.eq("ok") & ~frame.warmup & frame.tested & frame.metric.isin(named)]
    for row in valid[valid.src.eq("")].itertuples():
        params = {name: _plain(getattr(row, name)) for name in factors}
        yield {
            "machine": accelerator(run) or "unknown",
            "benchmark": f"{row.experiment}.{row.metric}",
            "params": json.dumps(params),
            "dask": versions[str(row.trial)],
            "run": f"{row.experiment}/{row.run}",
            "block": row.block,
            "null": row.null,
            "value": row.value,
        }


def _version(trial: Path) -> str:
    timings = store.read(Timings, trial)
    return timings.versions.get("dask", "unknown") if timings else "unknown"


def _sets_packages(experiment: Experiment, factor: str) -> bool:
    """Is a factor about versions, and about nothing else?"""
    return all(set(level) == {"packages"} for level in experiment.factors[factor].overrides().values())


def _plain(level: Any) -> Any:
    return level.item() if hasattr(level, "item") else level
