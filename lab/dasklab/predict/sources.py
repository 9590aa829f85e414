"""Choose the measured trials to calibrate on: all trials of one setting, because equal trials differ."""

from __future__ import annotations

from typing import Any

from dasklab import records
from dasklab.errors import LabError
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.settings.simulated import unmodelled
from dasklab.model.settings.trial_settings import Workload
from dasklab.results.run import Run, Trial

# A trial's place in its experiment; all its other fields are settings
PLACE = {"trial", "cell", "block", "baseline", "null", "factors", "tested"}


def sources(run: Run) -> dict[str, list[Trial]]:
    """Return the trials to calibrate on, by workload (see `key`).

    Of a trial that was opened alone, that is the trial itself. Of a run, it is for each workload all trials
    of one setting: for the baseline's workload the baseline of each block and the null trials (they come
    first), for another workload the setting closest to the baseline's, which differs in the fewest values.
    Only valid trials count that have Dask's records, no faults, and can be simulated.

    Raises:
        LabError: there is no such trial, or the run was itself simulated.
    """
    if not run.is_experiment:
        return {key(run.single.requested.workload): [run.single]}
    if run.simulated:
        raise LabError(f"{run}: this run was simulated; costs can be taken from measured runs only")
    usable = [trial for trial in run.trials if _is_recorded(trial) and _can_be_simulated(trial.requested)]
    if not usable:
        raise LabError(f"{run}: no valid trial that can be simulated has records of Dask")
    base = settings(next((trial for trial in usable if trial.requested.baseline), usable[0]).requested)
    trials: dict[str, list[Trial]] = {}
    nearest: dict[str, dict[str, Any]] = {}
    for trial in sorted(usable, key=lambda trial: _distance(settings(trial.requested), base)):
        workload, own = key(trial.requested.workload), settings(trial.requested)
        if own == nearest.setdefault(workload, own):
            trials.setdefault(workload, []).append(trial)
    return trials


def baseline(run: Run) -> list[Trial]:
    """Return the trials to calibrate on for the first workload: a trial itself, or a run's baseline.

    Raises:
        LabError: as `sources`.
    """
    return next(iter(sources(run).values()))


def key(workload: Workload) -> str:
    """Return a workload with its parameters as a key."""
    return workload.model_dump_json()


def settings(trial: RequestedTrial) -> dict[str, Any]:
    """Return the settings of a trial. They are equal in all trials of a cell."""
    return trial.model_dump(mode="json", exclude=PLACE)


def _is_recorded(trial: Trial) -> bool:
    return trial.is_valid and records.recorded(trial)


def _can_be_simulated(trial: RequestedTrial) -> bool:
    return not trial.faults and not any(unmodelled(trial, trial.resolved_scheduler))


def _distance(own: dict[str, Any], other: dict[str, Any]) -> int:
    """Return the number of settings that differ."""
    return sum(own[name] != other[name] for name in own)
