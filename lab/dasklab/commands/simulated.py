"""``dasklab run --simulate``: an experiment in virtual time, from its calibration to its tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from dasklab.commands.progress import conclude, execute
from dasklab.model.experiment import Experiment
from dasklab.model.trial import Setup
from dasklab.predict import simulated_lab
from dasklab.predict.simulated_lab import Calibrations, SimulatedLab
from dasklab.results.storage import store
from dasklab.running import driver


@dataclass(frozen=True)
class Calibrated:
    """An experiment's costs, and the lab in virtual time that has them."""

    calibrations: Calibrations
    setup: Setup

    @classmethod
    def on(cls, source: Path, experiment: Experiment, seeds: int) -> Calibrated:
        """Calibrate on a measured run or trial, which takes a while and is told."""
        found = Calibrations.on(source, experiment, lambda text: click.echo(text, err=True))
        return cls(found, simulated_lab.setup(source, experiment, found, seeds))

    def start(
        self,
        root: Path,
        name: str,
        experiment: Experiment,
        *,
        quick: bool,
        seed: int | None,
        only: str | None,
    ) -> Path:
        """Begin a run among the simulated ones and see it through; return where it is."""
        begun = driver.start(
            root / simulated_lab.FOLDER, name, experiment, self.setup, quick=quick, seed=seed, only=only
        )
        store.write(begun.directory, self.calibrations)
        go_on(begun)
        return begun.directory


def go_on(begun: driver.ActiveRun) -> None:
    """See a simulated run through, from its start or from where it was interrupted."""
    execute(begun, SimulatedLab.of(begun.directory))
    conclude(begun)
