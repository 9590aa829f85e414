"""Which measured trials costs are taken from: all of one setting, so that how they differ is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dasklab import record
from dasklab.errors import LabError
from dasklab.model.files import Campaign, Result
from dasklab.model.settings import Workload
from dasklab.model.simulated import unmodelled
from dasklab.model.trial import Trial
from dasklab.results.storage import store

PLACE = {"trial", "cell", "block", "baseline", "null", "factors", "tested"}  # all else is a setting


def sources(path: Path) -> dict[str, list[Path]]:
    """By workload (its JSON) the trials to calibrate on: the one that is named, or those of a run.

    Of the baseline's workload these are the baseline of each block and the null trials, and they come first;
    of another one its trials of the setting that is next to the baseline's: the fewest differ. Only valid
    trials without faults that can be simulated, of which Dask's own records are there.

    Raises:
        LabError: there is none, or the run was itself simulated.
    """
    if not (path / Campaign.FILE).exists():
        return {key(store.need(Trial, path).workload): [path]}
    if store.read_run(path).setup.simulated:
        raise LabError(f"{path}: it was simulated itself; costs are taken from measured runs")
    asked = {folder: store.need(Trial, folder) for folder in store.finished(path) if _told(folder)}
    able = {folder: trial for folder, trial in asked.items() if _able(trial)}
    if not able:
        raise LabError(f"{path}: of no valid trial that can be simulated anything was recorded inside Dask")
    base = settings(next((one for one in able.values() if one.baseline), next(iter(able.values()))))
    found: dict[str, list[Path]] = {}
    nearest: dict[str, dict[str, Any]] = {}
    for folder, trial in sorted(able.items(), key=lambda item: _apart(settings(item[1]), base)):
        work, mine = key(trial.workload), settings(trial)
        if mine == nearest.setdefault(work, mine):
            found.setdefault(work, []).append(folder)
    return found


def baseline(path: Path) -> list[Path]:
    """Of the first workload: a named trial, or a run's baseline and null trials.

    Raises:
        LabError: as `sources`.
    """
    return next(iter(sources(path).values()))


def key(workload: Workload) -> str:
    """A workload with its parameters, as a key."""
    return workload.model_dump_json()


def settings(trial: Trial) -> dict[str, Any]:
    """What two trials that are alike have in common."""
    return trial.model_dump(mode="json", exclude=PLACE)


def _told(folder: Path) -> bool:
    return store.need(Result, folder).status == "ok" and record.recorded(folder)


def _able(trial: Trial) -> bool:
    return not trial.faults and not any(unmodelled(trial, trial.resolved_scheduler))


def _apart(one: dict[str, Any], other: dict[str, Any]) -> int:
    """How many settings differ."""
    return sum(one[name] != other[name] for name in one)
