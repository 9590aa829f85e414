"""Baseline and what-if simulations of a record, shared by predictions and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dasklab.errors import LabError
from dasklab.model.files import Outcome
from dasklab.predict import prediction, record
from dasklab.predict.calibration import Calibration
from dasklab.predict.prediction import RunSummary
from dasklab.predict.record import RecordedWork
from dasklab.predict.validation import ValidatedRecords
from dasklab.results.statistics.interval import Interval
from dasklab.sim.scenario import Scenario

Changes = dict[str, Any]  # settings, nested as ``whatif.parse`` returns them
MOST_ERROR = 0.3
"""A simulation of the block as it was that misses its time by a larger share predicts no change of it."""


@dataclass(frozen=True)
class RecordSimulations:
    """A record, and its simulations with some seeds.

    Attributes:
        unchanged: the simulation of the block as it was.
    """

    work: RecordedWork
    calibration: Calibration
    seeds: Sequence[int]
    validated: ValidatedRecords
    unchanged: RunSummary
    on_outcome: Callable[[Outcome], None]

    @classmethod
    def start(
        cls, work: RecordedWork, seeds: Iterable[int], on_outcome: Callable[[Outcome], None] = lambda _: None
    ) -> RecordSimulations:
        """Calibrate a record and simulate it as it was.

        Raises:
            LabError: a simulation failed.
        """
        calibration, seeds = record.calibrate(work), list(seeds)
        what = "simulated, unchanged"
        scenarios = [record.scenario(work, calibration, {}, seed=seed) for seed in seeds]
        [(unchanged, _)] = prediction.simulated({what: scenarios}, on_outcome).values()
        return cls(work, calibration, seeds, ValidatedRecords.read(), unchanged, on_outcome)

    @property
    def error(self) -> float:
        """By what share the simulation without a change differs from the measured time."""
        return self.unchanged.mean_s / self.work.measured_s - 1

    def scenarios(self, changes: Changes) -> list[Scenario]:
        """Return a scenario for each seed."""
        return [record.scenario(self.work, self.calibration, changes, seed=seed) for seed in self.seeds]

    def simulate(self, changes: Mapping[str, Changes]) -> dict[str, tuple[RunSummary, list[Outcome]]]:
        """Simulate changes by their labels, all at once.

        Raises:
            LabError: the simulation without a change is too far from what was measured, or one failed.
        """
        self.require_similar()
        scenarios = {what: self.scenarios(own) for what, own in changes.items()}
        return prediction.simulated(scenarios, self.on_outcome)

    @property
    def prediction_error(self) -> float:
        """The error found in validation, or the record's own without a change if that is larger."""
        return max(self.validated.prediction_error, math.expm1(abs(math.log1p(self.error))))

    def widened(self, summary: RunSummary) -> RunSummary:
        """Return a summary whose interval includes the prediction error."""
        wide = Interval(summary.mean_s, summary.low_s, summary.high_s).widened(self.prediction_error)
        return replace(summary, low_s=wide.low, high_s=wide.high)

    def outside(self, changes: Iterable[Changes]) -> tuple[str, ...]:
        """Return a phrase for each way in which changes are unlike all that was validated."""
        scenarios = (record.scenario(self.work, self.calibration, own, seed=self.seeds[0]) for own in changes)
        return tuple(
            dict.fromkeys(phrase for scenario in scenarios for phrase in self.validated.outside(scenario))
        )

    def require_similar(self) -> None:
        """Refuse to predict if the simulation without a change is too far from what was measured.

        Raises:
            LabError: it is.
        """
        if abs(self.error) > MOST_ERROR:
            raise LabError(
                f"no prediction for {self.work.explained.trial}: it took {self.work.measured_s:.2f} s, and"
                f" its simulation without a change takes {self.unchanged.mean_s:.2f} s ({self.error:+.0%})",
                "something that is not simulated made the difference; dasklab explain shows what",
            )
