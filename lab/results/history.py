"""Chosen runs over Dask's versions: which is slower than the one before, and how sure is that.

What is kept is one table, a row per sample, in a CSV file that can be read and put under version control.
A run is kept whole or not at all; the same run again takes its own place. Runs of different accelerators are
never compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lab import atomic
from lab.errors import LabError
from lab.model.experiment import Experiment
from lab.model.files import Timings
from lab.model.metric import METRICS
from lab.model.packages import order
from lab.results import store
from lab.results.compare import accelerator
from lab.results.measures import Interval, Strata, median, ratio
from lab.results.table import load

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
    """From one version to the next that was measured; ``change`` is new over old."""

    machine: str
    benchmark: str
    params: dict[str, Any]
    old: str
    new: str
    n: int
    before: Interval
    after: Interval
    change: Interval
    floor: float
    repeated: bool

    @property
    def shown(self) -> bool:
        """Is there a difference, seen more than once and above what the null trial seems to differ by?"""
        return self.repeated and self.change.excludes(1) and not abs(self.change.value - 1) <= self.floor

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


def steps(history: pd.DataFrame) -> Iterator[Step]:
    """Each benchmark from each version to the next, oldest first."""
    for (machine, benchmark), about in history.groupby(KEY[:2], sort=False):
        floor = _floor(about)
        for params, samples in about[~about.null].groupby("params", sort=False):
            versions = {str(version): found for version, found in samples.groupby("dask")}
            named = sorted(versions, key=order)
            for old, new in pairwise(named):
                before, after = versions[old], versions[new]
                yield Step(
                    str(machine),
                    str(benchmark),
                    json.loads(str(params)),
                    old,
                    new,
                    len(after),
                    median(before.value.to_numpy(dtype=float)),
                    median(after.value.to_numpy(dtype=float)),
                    ratio(_strata(after), _strata(before)),
                    floor,
                    _repeated(_strata(before), _strata(after)),
                )


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


def _floor(samples: pd.DataFrame) -> float:
    """By how much the null trials seem to differ from what they are copies of; unknown without any."""
    null = samples[samples.null]
    ends = ["run", "params", "dask"]
    same = samples[~samples.null].merge(null[ends].drop_duplicates(), on=ends)
    if null.empty or same.empty:
        return math.nan
    found = ratio(_strata(null), _strata(same))
    return Interval(found.value - 1, found.low - 1, found.high - 1).reach


def _repeated(before: Strata, after: Strata) -> bool:
    """Do two blocks or more all say the same? A trial's samples share what else the machine did then."""
    old, new = ({key: float(np.median(found)) for key, found in side.items()} for side in (before, after))
    pairs = [(old[key], new[key]) for key in old.keys() & new.keys()]
    pairs = pairs or [(one, other) for one in old.values() for other in new.values()]
    enough = min(len(old), len(new)) > 1 and len(pairs) > 1
    return enough and (all(a < b for a, b in pairs) or all(a > b for a, b in pairs))


def _strata(samples: pd.DataFrame) -> Strata:
    return {
        key: found.value.to_numpy(dtype=float) for key, found in samples.groupby(["run", "block"], sort=False)
    }
