"""Measured and predicted durations of repeats, as rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import mean
from typing import Any

import numpy as np

from dasklab.errors import LabError
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Outcome, Timings
from dasklab.predict.calibration import Calibration, pair_with_seeds
from dasklab.predict.engine import processes
from dasklab.predict.whatif import scenario
from dasklab.results.run import Trial
from dasklab.sim.scenario import Scenario

TAIL_PCT = 5  # so many of the repeats lie on each side of the interval


@dataclass(frozen=True)
class RunSummary:
    """Timed repeats of one kind. 90 % of their durations are between ``low_s`` and ``high_s``."""

    what: str
    simulated: bool
    repeats: int
    mean_s: float
    low_s: float
    high_s: float
    transfer_bytes: float


def summarize(
    what: str, durations_s: Sequence[float], transfer_bytes: Sequence[float], *, simulated: bool
) -> RunSummary:
    """Summarize the durations and transferred bytes of timed repeats."""
    low, high = np.percentile(durations_s, [TAIL_PCT, 100 - TAIL_PCT])
    return RunSummary(
        what,
        simulated,
        len(durations_s),
        mean(durations_s),
        float(low),
        float(high),
        mean(transfer_bytes),
    )


def measured(trials: Iterable[Trial]) -> RunSummary:
    """Summarize the timed repeats of equal trials."""
    repeats = [repeat for trial in trials for repeat in trial.require(Timings).timed]
    transfer_bytes = [float(repeat.transfer_bytes or 0) for repeat in repeats]
    return summarize("measured", [repeat.duration_s for repeat in repeats], transfer_bytes, simulated=False)


def predict(
    what: str,
    trial: RequestedTrial,
    calibrations: Sequence[Calibration],
    changes: dict[str, Any],
    seeds: Iterable[int],
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> tuple[RunSummary, list[Outcome]]:
    """Simulate a trial with changed settings, once for each seed.

    Args:
        what: label of the summary.
        trial: the trial that was measured.
        calibrations: of this trial or of equal ones; the seeds are dealt to them.
        changes: settings that differ from the trial's.
        seeds: seeds of the simulations.
        on_outcome: called with each outcome.

    Raises:
        LabError: a change is impossible or cannot be simulated, or a simulation failed.
    """
    scenarios = [
        scenario(trial, calibration, changes, seed=seed)
        for calibration, seed in pair_with_seeds(calibrations, seeds)
    ]
    [(summary, outcomes)] = simulated({what: scenarios}, on_outcome).values()
    return summary, outcomes


def simulated(
    scenarios: Mapping[str, Sequence[Scenario]], on_outcome: Callable[[Outcome], None] = lambda _: None
) -> dict[str, tuple[RunSummary, list[Outcome]]]:
    """Simulate scenarios by their labels, all at once, and summarize the timed repeats of each label.

    Raises:
        LabError: a simulation failed.
    """
    every = [scenario for own in scenarios.values() for scenario in own]
    outcomes = iter(processes.simulate_all(every, on_outcome))
    by_label = {what: list(islice(outcomes, len(own))) for what, own in scenarios.items()}
    return {what: (_summary(what, own), own) for what, own in by_label.items()}


def _summary(what: str, outcomes: Sequence[Outcome]) -> RunSummary:
    if failure := next((outcome for outcome in outcomes if outcome.failed), None):
        raise LabError(f"{what}: seed {failure.seed}: {failure.failed}")
    repeats = [repeat for outcome in outcomes for repeat in outcome.repeats if not repeat.warmup]
    transfer_bytes = [float(repeat.transfer_bytes) for repeat in repeats]
    return summarize(what, [repeat.duration_s for repeat in repeats], transfer_bytes, simulated=True)
