"""May two runs be compared, and if so, what changed between them?

Absolute times mean nothing across machines or versions: two runs are comparable when what computed was the
same (workload and its size, versions, accelerator), and TCP's congestion control, which containers have from
their host. The user may overrule that by name. How much a trial varies is estimated from the trials of both
runs (``dasklab.results.statistics.inference``); how much one day differs from
another cannot be, from two of them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from dasklab.errors import LabError
from dasklab.model.files import Configured, Hosts, Timings
from dasklab.model.metric import METRICS
from dasklab.model.trial import Trial
from dasklab.results.statistics.inference import ALPHA, Estimate, Fit, holm
from dasklab.results.statistics.measures import Interval, exp, level
from dasklab.results.statistics.trial_values import Scale, is_scaled
from dasklab.results.storage import store
from dasklab.results.storage.table import load

PACKAGES = ("python", "dask", "distributed", "numpy")


@dataclass(frozen=True)
class Change:
    """One cell's metric in two runs, and new over old with its interval.

    ``shown``: chance explains the difference in less than one of 20 tables as long as this one.
    """

    metric: str
    cell: str
    old: float
    new: float
    ratio: Interval
    shown: bool


def identity(run: Path) -> dict[str, Any]:
    """What must be equal for two runs to be compared; versions are those of the baseline."""
    experiment = store.read_run(run).experiment
    identity: dict[str, Any] = {"workload": experiment.get("workload")}
    if sources := experiment.get("workload_sources"):
        text = json.dumps(sources, sort_keys=True)
        identity["workload's source"] = hashlib.sha256(text.encode()).hexdigest()[:8]
    done = store.finished(run)
    for directory in sorted(done, key=lambda trial: not store.need(Trial, trial).baseline):
        if timings := store.read(Timings, directory):
            identity |= {package: timings.versions.get(package) for package in PACKAGES}
            break
    return identity | {
        "accelerator": accelerator(run),
        "congestion control": congestion_control(run),
        "simulated from": simulated_from(run),
    }


def simulated_from(run: Path) -> str | None:
    """Where a simulated run's costs are from; None of a measured one."""
    simulated = store.read_run(run).setup.simulated
    return simulated.origin if simulated else None


def mark(run: Path) -> str:
    """What stands behind the heading of each of a run's tables: that it was simulated, or nothing."""
    return ", simulated" if simulated_from(run) else ""


def accelerator(run: Path) -> str | None:
    """``kvm`` or ``tcg``, as the hypervisor said in the first trial that did; None where it did not."""
    for directory in store.finished(run):
        if machines := store.read(Hosts, directory):
            return machines.hypervisor.accel
    return None


def congestion_control(run: Path) -> str | None:
    """TCP's on all hosts of the first trial that has it read back: a name, or several."""
    for directory in store.finished(run):
        if configured := store.read(Configured, directory):
            return ", ".join(sorted({host.congestion_control for host in configured.hosts.values()}))
    return None


def compare(old: Path, new: Path, anyway: bool = False) -> list[Change]:
    """Every cell and metric that both runs have, valid trials only.

    Raises:
        LabError: the runs are not comparable, and it was not said to do it anyway.
    """
    before, after = identity(old), identity(new)
    differ = [
        f"{key} {before.get(key)} and {after.get(key)}" for key in before if before[key] != after.get(key)
    ]
    if differ and not anyway:
        raise LabError(
            f"not comparable: {'; '.join(differ)}", "dasklab results compare --anyway if you mean it"
        )
    frames = [_valid(load(run)) for run in (old, new)]
    keys = [set(zip(frame.metric, frame.cell, strict=True)) for frame in frames]
    common = sorted(keys[0] & keys[1])
    if not common:
        raise LabError(f"{old} and {new} have no valid cell in common")
    rows = [
        row for metric in dict.fromkeys(key[0] for key in common) for row in _rows(frames, metric, common)
    ]
    corrected = holm([estimate.p_value for _, estimate in rows])
    return [
        replace(change, shown=p_value < ALPHA) for (change, _), p_value in zip(rows, corrected, strict=True)
    ]


def _valid(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.status.eq("ok") & ~frame.warmup & frame.tested]


def _rows(
    frames: Sequence[pd.DataFrame], metric: str, common: Sequence[tuple[str, str]]
) -> Iterator[tuple[Change, Estimate]]:
    """One metric's cells in both runs: all trials of both tell how much a trial varies."""
    old, new = (frame[frame.metric == metric] for frame in frames)
    log = is_scaled(pd.concat([old, new]), METRICS[metric].zero_based)
    scale = Scale.of(old, log)
    sides = [scale.values(side).assign(side=name) for name, side in (("old", old), ("new", new))]
    trials = pd.concat(sides, ignore_index=True)
    fit = Fit(
        list(zip(trials.side, trials.cell, strict=True)),
        list(zip(trials.side, trials.run, trials.block, strict=True)),
        trials.value.to_numpy(),
    )
    for cell in (cell for of, cell in common if of == metric):
        estimate = fit.difference(("new", cell), ("old", cell))
        reference = float(trials.reference[trials.cell == cell].mean())
        before, after = (level(fit.mean((side, cell)), reference, log).value for side in ("old", "new"))
        yield Change(metric, cell, before, after, _ratio(estimate, before, log), shown=False), estimate


def _ratio(estimate: Estimate, before: float, log: bool) -> Interval:
    """New over old; not finite over nothing."""
    ends = (estimate.value, estimate.value - estimate.margin, estimate.value + estimate.margin)
    if log:
        return Interval(*map(exp, ends))
    return Interval(*(1 + end / before for end in ends)) if before else Interval(math.nan)
