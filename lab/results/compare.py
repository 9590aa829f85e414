"""May two runs be compared, and if so, what changed between them?

Absolute times mean nothing across machines or versions: two runs are comparable when what computed was the
same (workload and its size, versions, accelerator), and TCP's congestion control, which containers have from
their host. The user may overrule that by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lab.errors import LabError
from lab.model.files import Configured, Machines, Timings
from lab.model.trial import Trial
from lab.results import store
from lab.results.measures import Interval, ratio
from lab.results.table import load

PACKAGES = ("python", "dask", "distributed", "numpy")


@dataclass(frozen=True)
class Change:
    """One cell's metric in two runs: samples of each, and new over old with its interval."""

    metric: str
    cell: str
    old: float
    new: float
    ratio: Interval


def identity(run: Path) -> dict[str, Any]:
    """What must be equal for two runs to be compared; versions are those of the baseline."""
    identity: dict[str, Any] = {"workload": store.read_run(run).experiment.get("workload")}
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
        if machines := store.read(Machines, directory):
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
    return [_change(frames[0], frames[1], metric, cell) for metric, cell in common]


def _valid(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.status.eq("ok") & ~frame.warmup & ~frame.null & frame.tested]


def _change(old: pd.DataFrame, new: pd.DataFrame, metric: str, cell: str) -> Change:
    samples = [
        frame.value[(frame.metric == metric) & (frame.cell == cell)].to_numpy(dtype=float)
        for frame in (old, new)
    ]
    medians = [float(pd.Series(values).median()) for values in samples]
    return Change(metric, cell, medians[0], medians[1], ratio({0: samples[1]}, {0: samples[0]}))
