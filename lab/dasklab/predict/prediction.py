"""Measured beside simulated, and what is foretold for changed settings: distributions over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from dasklab.errors import LabError
from dasklab.model.files import Outcome, Timings
from dasklab.model.trial import Trial
from dasklab.predict import farm
from dasklab.predict.calibration import Calibration, dealt
from dasklab.predict.whatif import scenario
from dasklab.results.storage import store

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


def measured(directories: Iterable[Path]) -> Row:
    """The runs of trials that are alike."""
    runs = [run for directory in directories for run in store.need(Timings, directory).timed]
    moved = [float(run.transfer_bytes or 0) for run in runs]
    return row("measured", [run.duration_s for run in runs], moved, simulated=False)


def foretold(
    what: str,
    trial: Trial,
    calibrations: Sequence[Calibration],
    changes: dict[str, Any],
    seeds: Iterable[int],
    told: Callable[[Outcome], None] = lambda _: None,
) -> tuple[Row, list[Outcome]]:
    """Simulate a trial with changed settings once for each seed, the seeds dealt to the calibrations.

    Raises:
        LabError: a change is impossible, or cannot be simulated.
    """
    asked = [scenario(trial, mine, changes, seed=seed) for mine, seed in dealt(calibrations, seeds)]
    outcomes = farm.simulate_all(asked, told)
    if failed := next((outcome for outcome in outcomes if outcome.failed), None):
        raise LabError(f"{what}: seed {failed.seed}: {failed.failed}")
    runs = [run for outcome in outcomes for run in outcome.runs if not run.warmup]
    moved = [float(run.transfer_bytes) for run in runs]
    return row(what, [run.duration_s for run in runs], moved, simulated=True), outcomes
