"""``dasklab run --simulate``: an experiment in virtual time, from its calibration to its tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dasklab.console.trials.progress import conclude, execute
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.trial import Setup
from dasklab.predict import simulated_lab
from dasklab.predict.simulated_lab import Calibrations, SimulatedLab
from dasklab.results.run import Run
from dasklab.running.driver import driver
from dasklab.terminal import echo


@dataclass(frozen=True)
class Calibrated:
    """The costs of an experiment's workloads, and the setup of the simulated lab that has them."""

    calibrations: Calibrations
    setup: Setup

    @classmethod
    def from_measured(cls, source: Run, experiment: Experiment, seeds: int) -> Calibrated:
        """Calibrate on a measured run or trial. It takes a while, so each workload is reported."""
        calibrations = Calibrations.from_measured(source, experiment, lambda line: echo(line, err=True))
        return cls(calibrations, simulated_lab.setup(source, experiment, calibrations, seeds))

    def start(
        self,
        root: Path,
        name: str,
        experiment: Experiment,
        *,
        quick: bool,
        seed: int | None,
        only: str | None,
    ) -> Run:
        """Start a run below the folder of simulated ones, execute it, and return it."""
        ongoing = driver.start(
            root / simulated_lab.FOLDER, name, experiment, self.setup, quick=quick, seed=seed, only=only
        )
        ongoing.stored.write(self.calibrations)
        go_on(ongoing)
        return ongoing.opened_again()


def go_on(ongoing: driver.ActiveRun) -> None:
    """Execute the remaining trials of a simulated run."""
    execute(ongoing, SimulatedLab.of_run(ongoing.opened_again()))
    conclude(ongoing)
