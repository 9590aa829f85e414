"""A lab in virtual time: the driver runs trials on it as on any lab, and it leaves the same files."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from math import ceil
from pathlib import Path
from random import Random
from typing import ClassVar

from dasklab.errors import LabError
from dasklab.model.experiments.cells import cells
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.trial import RequestedTrial, Setup
from dasklab.model.files import (
    AGAIN,
    Failed,
    ObservedCluster,
    ObservedFault,
    ObservedFaults,
    Outcome,
    Sample,
    Simulation,
    Timings,
)
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import Strict
from dasklab.model.settings.hosts import host_names
from dasklab.model.settings.nic import NicSettings
from dasklab.model.settings.simulated import SimulatedSetup
from dasklab.model.settings.trial_settings import Workload
from dasklab.predict.calibrate import calibrate_each
from dasklab.predict.calibration import Calibration, pair_with_seeds
from dasklab.predict.engine import processes
from dasklab.predict.sources import sources
from dasklab.predict.validation import Validated
from dasklab.predict.whatif import scenario, threads
from dasklab.results.run import Run, Trial
from dasklab.running.plan.trials import requested
from dasklab.sim.scenario import Scenario

FOLDER = "simulated"  # below the folder of results
MAX_HASH_SEED = 2**32


class WorkloadCalibrations(Strict):
    """The costs of one workload: a calibration for each trial of one setting."""

    workload: Workload
    calibrations: tuple[Calibration, ...]


class Calibrations(Document):
    """Everything that the trials of a simulated run are simulated from."""

    FILE: ClassVar[str] = "calibrations.json"

    workloads: tuple[WorkloadCalibrations, ...]

    @classmethod
    def from_measured(cls, run: Run, experiment: Experiment, report: Callable[[str], None]) -> Calibrations:
        """Calibrate each workload of an experiment on a measured trial, or on equal trials of a run.

        Args:
            run: the run, or the trial that was opened alone.
            experiment: the experiment to simulate.
            report: called with one line for each workload.

        Raises:
            LabError: no trial there can be calibrated on for any workload of the experiment.
        """
        needed = [requested("", experiment, cell).workload for cell in cells(experiment)]
        workloads: list[WorkloadCalibrations] = []
        for trials in sources(run).values():
            workload = trials[0].requested.workload
            if workload in needed:
                report(f"calibrating {workload.name} on {', '.join(str(trial) for trial in trials)}")
                try:
                    calibrations = tuple(calibrate_each(trials).values())
                except LabError as error:
                    report(error.message)
                    continue
                workloads.append(WorkloadCalibrations(workload=workload, calibrations=calibrations))
        if not workloads:
            names = ", ".join(dict.fromkeys(workload.name for workload in needed))
            raise LabError(
                f"{run}: no measured trial shows the costs of {names} with these parameters",
                "measure one: dasklab run EXPERIMENT --only CELL",
            )
        return cls(workloads=tuple(workloads))

    def of(self, workload: Workload) -> tuple[Calibration, ...]:
        """Return the calibrations of a workload, which must be one of these."""
        return next(entry.calibrations for entry in self.workloads if entry.workload == workload)


@dataclass(frozen=True)
class SimulatedLab:
    """Runs trials in virtual time. A trial's seeds follow from the run's seed and the trial's cell alone."""

    calibrations: Calibrations
    seeds: int
    seed: int

    @classmethod
    def of_run(cls, run: Run) -> SimulatedLab:
        """Return the lab that a simulated run was started with."""
        seeds = run.simulated.seeds if run.simulated else 1
        return cls(run.require(Calibrations), seeds, run.document.seed)

    def run_trial(self, stored: Trial) -> int:
        """Simulate a trial with several seeds and write its files.

        Returns:
            0, or 1 if the trial failed: the simulation of at least one seed did not complete.
        """
        trial = stored.requested
        calibrations = self.calibrations.of(trial.workload)
        outcomes = processes.simulate_all(self._scenarios(trial, calibrations))
        stored.write(Simulation(outcomes=tuple(outcomes)))
        if trial.faults:
            stored.write(ObservedFaults(hosts=_observed_faults(outcomes)))
        if failures := [outcome for outcome in outcomes if outcome.failed]:
            stored.write(_failed(stored.folder, trial, failures))
            return 1
        stored.write(_timings(trial, calibrations[0], outcomes))
        return 0

    def reset(self) -> None:
        """Do nothing: a simulated trial leaves nothing behind."""

    def require_endpoint(self) -> None:
        """A simulation has no endpoint."""

    def _scenarios(self, trial: RequestedTrial, calibrations: Sequence[Calibration]) -> Iterator[Scenario]:
        dice = Random(f"{self.seed}/{trial.block}/{trial.cell}/{trial.null}")
        # A fault in the first repeat affects the later ones, so each simulation has all of them
        repeats = trial.repeats if trial.faults else ceil(trial.repeats / self.seeds)
        seeds = [dice.randrange(MAX_HASH_SEED) for _ in range(self.seeds)]
        for calibration, seed in pair_with_seeds(calibrations, seeds):
            yield scenario(trial, calibration, {"repeats": repeats}, seed=seed)


def setup(run: Run, experiment: Experiment, calibrations: Calibrations, seeds: int) -> Setup:
    """Return the setup of a simulated lab: the measured run's, with as many workers as the experiment needs.

    Raises:
        LabError: the trial is not in the directory of a run, which would describe its lab.
    """
    measured = run.campaign.setup
    workers = max(requested("", experiment, cell).workers for cell in cells(experiment))
    names = tuple(dict.fromkeys([*measured.hosts, *host_names(workers)]))
    first = "worker-1"
    card = measured.nics.get(first, NicSettings())
    return measured.model_copy(
        update={
            "hosts": names,
            "nics": {host: measured.nics.get(host, card) for host in names},
            "guests": {
                host: measured.guests.get(host, measured.guests[first]) for host in names if measured.guests
            },
            "kernel_lacks": {},
            "simulated": SimulatedSetup(
                origin=str(run.folder),
                workloads=tuple(entry.workload for entry in calibrations.workloads),
                seeds=seeds,
                prediction_error=Validated.read().prediction_error,
            ),
        }
    )


def _observed_faults(outcomes: list[Outcome]) -> dict[str, ObservedFault]:
    """Combine the faults of all seeds as if of one lab.

    A fault counts as not observed if the repeats of one seed were too short for it. It has ended if it ended
    with any seed.
    """
    combined = dict(outcomes[0].faults)
    for outcome in outcomes[1:]:
        for host, fault in outcome.faults.items():
            lasted_s = combined[host].lasted_s or fault.lasted_s
            base = fault if fault.at_s is None else combined[host]
            combined[host] = base.model_copy(update={"lasted_s": lasted_s})
    return combined


def _failed(directory: Path, trial: RequestedTrial, failures: list[Outcome]) -> Failed:
    again = f"dasklab run {directory.parent} --only {trial.cell}"
    reasons = (*(f"seed {outcome.seed}: {outcome.failed}" for outcome in failures), f"{AGAIN}{again}")
    return Failed(status="failed", host="client", task="simulate", reasons=reasons)


def _timings(trial: RequestedTrial, calibration: Calibration, outcomes: list[Outcome]) -> Timings:
    workers = min(trial.workers if outcome.workers is None else outcome.workers for outcome in outcomes)
    return Timings(
        workload=trial.workload.name,
        params=dict(trial.workload.params),
        tasks=outcomes[0].tasks,
        samples=tuple(_samples(outcomes)),
        cluster=ObservedCluster(workers=workers, threads=workers * threads(trial, calibration), addresses={}),
        versions={"python": platform.python_version()}
        | {package: version(package) for package in ("dask", "distributed", "numpy")},
    )


def _samples(outcomes: list[Outcome]) -> Iterator[Sample]:
    """Yield the repeats of all seeds. Each seed's clock starts at 0."""
    for outcome in outcomes:
        start = 0.0
        for number, repeat in enumerate(outcome.repeats):
            stop = start + repeat.duration_s
            yield Sample(
                repeat=number,
                warmup=repeat.warmup,
                start=start,
                stop=stop,
                duration_s=repeat.duration_s,
                transfer_bytes=repeat.transfer_bytes,
                ok=True,
            )
            start = stop
