"""Choose the measured trials to calibrate on: all trials of one setting, because equal trials differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dasklab import records
from dasklab.errors import LabError
from dasklab.model.files import Campaign, Result
from dasklab.model.settings import Workload
from dasklab.model.simulated import unmodelled
from dasklab.model.trial import RequestedTrial
from dasklab.results.storage import store

# A trial's place in its experiment; all its other fields are settings
PLACE = {"trial", "cell", "block", "baseline", "null", "factors", "tested"}


def sources(path: Path) -> dict[str, list[Path]]:
    """Return the trials to calibrate on, by workload (see `key`).

    For a trial, that is the trial itself. For a run, it is for each workload all trials of one setting: for
    the baseline's workload the baseline of each block and the null trials (they come first), for another
    workload the setting closest to the baseline's, which differs in the fewest values. Only valid trials
    count that have Dask's records, no faults, and can be simulated.

    Raises:
        LabError: there is no such trial, or the run was itself simulated.
    """
    if not (path / Campaign.FILE).exists():
        return {key(store.need(RequestedTrial, path).workload): [path]}
    if store.read_run(path).setup.simulated:
        raise LabError(f"{path}: this run was simulated; costs can be taken from measured runs only")
    recorded = {
        folder: store.need(RequestedTrial, folder) for folder in store.finished(path) if _is_recorded(folder)
    }
    usable = {folder: trial for folder, trial in recorded.items() if _can_be_simulated(trial)}
    if not usable:
        raise LabError(f"{path}: no valid trial that can be simulated has records of Dask")
    baseline_trial = next((trial for trial in usable.values() if trial.baseline), next(iter(usable.values())))
    base = settings(baseline_trial)
    directories: dict[str, list[Path]] = {}
    nearest: dict[str, dict[str, Any]] = {}
    for folder, trial in sorted(usable.items(), key=lambda item: _distance(settings(item[1]), base)):
        workload, own = key(trial.workload), settings(trial)
        if own == nearest.setdefault(workload, own):
            directories.setdefault(workload, []).append(folder)
    return directories


def baseline(path: Path) -> list[Path]:
    """Return the trials to calibrate on for the first workload: a trial itself, or a run's baseline.

    Raises:
        LabError: as `sources`.
    """
    return next(iter(sources(path).values()))


def key(workload: Workload) -> str:
    """Return a workload with its parameters as a key."""
    return workload.model_dump_json()


def settings(trial: RequestedTrial) -> dict[str, Any]:
    """Return the settings of a trial. They are equal in all trials of a cell."""
    return trial.model_dump(mode="json", exclude=PLACE)


def _is_recorded(folder: Path) -> bool:
    return store.need(Result, folder).status == "ok" and records.recorded(folder)


def _can_be_simulated(trial: RequestedTrial) -> bool:
    return not trial.faults and not any(unmodelled(trial, trial.resolved_scheduler))


def _distance(own: dict[str, Any], other: dict[str, Any]) -> int:
    """Return the number of settings that differ."""
    return sum(own[name] != other[name] for name in own)
