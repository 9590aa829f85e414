"""Measured beside simulated, and what is foretold for changed settings: distributions over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from lab import inside
from lab.errors import LabError
from lab.model.files import Campaign, Sample, Timings
from lab.model.trial import Trial
from lab.results import store
from lab.sim import farm
from lab.sim.calibration import Calibration
from lab.sim.scenario import Outcome
from lab.sim.whatif import scenario

TAIL_PCT = 5  # on either side of the interval


@dataclass(frozen=True)
class Row:
    """Durations and moved bytes of timed runs: ``low_s`` to ``high_s`` hold nine tenths of them."""

    what: str
    simulated: bool
    runs: int
    mean_s: float
    low_s: float
    high_s: float
    transfer_bytes: float


def row(what: str, durations: Sequence[float], moved: Sequence[float], *, simulated: bool) -> Row:
    """A row of the table."""
    low, high = np.percentile(durations, [TAIL_PCT, 100 - TAIL_PCT])
    return Row(what, simulated, len(durations), mean(durations), float(low), float(high), mean(moved))


def measured(directory: Path) -> Row:
    """A trial's own runs."""
    runs: list[Sample] = [run for run in store.need(Timings, directory).samples if not run.warmup]
    moved = [float(run.transfer_bytes or 0) for run in runs]
    return row("measured", [run.duration_s for run in runs], moved, simulated=False)


def foretold(
    what: str,
    trial: Trial,
    calibration: Calibration,
    changes: dict[str, Any],
    seeds: Iterable[int],
    told: Callable[[Outcome], None] = lambda _: None,
) -> tuple[Row, list[Outcome]]:
    """Simulate a trial with changed settings once for each seed.

    Raises:
        LabError: a change is impossible, or cannot be simulated.
    """
    outcomes = farm.simulate_all([scenario(trial, calibration, changes, seed=seed) for seed in seeds], told)
    if failed := next((outcome for outcome in outcomes if outcome.failed), None):
        raise LabError(f"{what}: seed {failed.seed}: {failed.failed}")
    runs = [run for outcome in outcomes for run in outcome.runs if not run.warmup]
    moved = [float(run.transfer_bytes) for run in runs]
    return row(what, [run.duration_s for run in runs], moved, simulated=True), outcomes


def source(path: Path) -> Path:
    """The trial that a path names: itself, or of a run the first one of the baseline with records.

    Raises:
        LabError: there is none.
    """
    if not (path / Campaign.FILE).exists():
        return path
    if store.read_run(path).setup.simulated:
        raise LabError(f"{path}: it was simulated itself; costs are taken from measured runs")
    for directory in store.finished(path):
        if store.need(Trial, directory).baseline and inside.recorded(directory):
            return directory
    raise LabError(f"{path}: of its baseline nothing was recorded inside Dask")
