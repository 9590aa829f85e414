"""Selected runs over Dask's versions: which version is slower than the one before, and how sure is that?

The history is one table with a row per sample, in a CSV file that can be read and put under version control.
A run is added completely or not at all; adding it again replaces it. Runs on different accelerators are never
compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field, computed_field

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.settings.metric import METRICS
from dasklab.model.settings.packages import version_key
from dasklab.results.run import Run, Trial
from dasklab.results.statistics.identity import accelerator
from dasklab.results.statistics.inference import ALPHA, Estimate, Fit, holm
from dasklab.results.statistics.interval import Interval
from dasklab.results.statistics.scale import Scale, level
from dasklab.results.statistics.typical import typical
from dasklab.results.table import table

COLUMNS = {
    "machine": "accelerator of the lab; results of different ones are not compared",
    "benchmark": "experiment and metric",
    "params": "the other levels of the cell, as JSON",
    "dask": "version that ran",
    "run": "the run's directory",
    "block": "its block; versions are compared within a block that they share",
    "null": "a sample of the null trial, which shows how much a cell differs from itself",
    "value": "the sample",
}
TYPES: dict[str, type] = {"block": int, "null": bool, "value": float}  # all other columns are texts
KEY = ["machine", "benchmark"]


@dataclass(frozen=True)
class VersionStep:
    """From one version to the next that was measured; ``change`` is new over old.

    ``is_shown`` means that chance explains the change in fewer than one of 20 histories with as many steps.
    """

    benchmark: str
    params: dict[str, Any]
    machine: str
    old: str
    new: str
    n: Annotated[int, Field(exclude=True)]
    before: Interval
    after: Interval
    change: Annotated[Interval, Field(alias="ratio", description="After over before.")]
    is_shown: Annotated[bool, Field(exclude=True)]

    @computed_field  # type: ignore[prop-decorator]  # mypy does not know that this keeps the property
    @property
    def verdict(self) -> Literal["regression", "improvement", "change", "not shown"]:
        """``regression``, ``improvement``, ``change`` (neither more nor less is worse) or ``not shown``."""
        worse = METRICS[self.benchmark.rpartition(".")[2]].worse
        if not self.is_shown:
            return "not shown"
        if worse is None:
            return "change"
        return "regression" if (self.change.value > 1) == (worse == "more") else "improvement"


def read(file: Path) -> pd.DataFrame:
    """Return the history; an empty table if there is no file yet.

    Raises:
        LabError: the file is damaged, or is not a history.
    """
    if not file.exists():
        return pd.DataFrame(columns=list(COLUMNS))
    types: dict[str, type] = {name: TYPES.get(name, str) for name in COLUMNS}
    try:
        frame = pd.read_csv(file, dtype=types, keep_default_na=False)
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise LabError(f"{file}: damaged, it cannot be read: {str(error).splitlines()[0]}") from error
    if list(frame) != list(COLUMNS):
        raise LabError(f"{file}: this is not a history, its columns are {', '.join(map(str, frame))}")
    if lines := [line for line, text in enumerate(frame.params, start=2) if not _is_object(text)]:
        raise LabError(f"{file}, line {lines[0]}: damaged, params is not a JSON object")
    if lines := [line for line, value in enumerate(frame.value, start=2) if not 0 <= value < math.inf]:
        raise LabError(f"{file}, line {lines[0]}: damaged, value must be 0 or more")
    return frame


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def require(file: Path) -> pd.DataFrame:
    """Return the history.

    Raises:
        LabError: it is empty, or see ``read``.
    """
    frame = read(file)
    if frame.empty:
        raise LabError(f"{file}: the history is empty", "dasklab history add RUN")
    return frame


def add(file: Path, run: Run) -> int:
    """Add the valid samples of a run to the history; return their number.

    Raises:
        LabError: the run has no valid samples.
    """
    rows = pd.DataFrame(_rows(run), columns=list(COLUMNS))
    if rows.empty:
        raise LabError(f"{run}: no valid sample of a metric that its experiment names")
    old = read(file)
    frames = [frame for frame in (old[old.run != rows.run.iloc[0]], rows) if not frame.empty]
    with atomic.replaced(file) as draft:
        pd.concat(frames).to_csv(draft, index=False)
    return len(rows)


def steps(history: pd.DataFrame) -> list[VersionStep]:
    """Compare each benchmark from each version to the next, oldest first."""
    pairs = [pair for _, samples in history.groupby(KEY, sort=False) for pair in _steps(samples)]
    corrected = holm([estimate.p_value for _, estimate in pairs])
    return [
        replace(step, is_shown=p_value < ALPHA) for (step, _), p_value in zip(pairs, corrected, strict=True)
    ]


def typical_of(samples: pd.DataFrame) -> Interval:
    """Return the typical value of one version's samples."""
    return typical(samples.assign(cell="", src="", dst=""))


def _steps(samples: pd.DataFrame) -> Iterator[tuple[VersionStep, Estimate]]:
    """Compare the versions of one benchmark on one machine, within the blocks that they share."""
    by_cell = _with_cells(samples)
    trials = Scale.of(by_cell, log=True).values(by_cell)
    blocks = list(zip(trials.run, trials.block, strict=True))
    fit = Fit(list(trials.cell), blocks, trials.value.to_numpy())
    reference = float(trials.reference.mean())
    for params, own in samples[~samples.null].groupby("params", sort=False):
        for old, new in pairwise(sorted(own.dask.unique(), key=version_key)):
            ends = (_cell(params, old), _cell(params, new))
            estimate = fit.difference(ends[1], ends[0])
            before, after = (level(fit.mean(end), reference, log=True) for end in ends)
            first = own.iloc[0]
            step = VersionStep(
                machine=str(first.machine),
                benchmark=str(first.benchmark),
                params=json.loads(str(params)),
                old=str(old),
                new=str(new),
                n=int((own.dask == new).sum()),
                before=before,
                after=after,
                change=level(estimate, 0.0, log=True),
                is_shown=False,
            )
            yield step, estimate


def _with_cells(samples: pd.DataFrame) -> pd.DataFrame:
    cells = [_cell(params, dask) for params, dask in zip(samples.params, samples.dask, strict=True)]
    return samples.assign(cell=cells, src="", dst="")


def _cell(params: object, dask: object) -> str:
    return f"{params} {dask}"


def _rows(run: Run) -> Iterator[dict[str, Any]]:
    """Yield a run's valid samples, without warm-ups and probes, of the metrics whose ratios make sense."""
    experiment, frame = run.experiment, table(run)
    versions = {trial.name: _version(trial) for trial in run.trials}
    factors = [name for name in frame.attrs["factors"] if not _sets_packages(experiment, name)]
    metrics = [metric for metric in experiment.metrics if not METRICS[metric].zero_based]
    valid = frame[frame.status.eq("ok") & ~frame.warmup & frame.tested & frame.metric.isin(metrics)]
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


def _version(trial: Trial) -> str:
    return trial.timings.versions.get("dask", "unknown") if trial.timings else "unknown"


def _sets_packages(experiment: Experiment, factor: str) -> bool:
    """Whether a factor sets versions of packages, and nothing else."""
    return all(set(level) == {"packages"} for level in experiment.factors[factor].overrides().values())


def _plain(level: Any) -> Any:
    return level.item() if hasattr(level, "item") else level
