"""A lab in virtual time, as the driver knows labs: it leaves a trial's files, calibrated on measured ones."""

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
from dasklab.model.cells import cells
from dasklab.model.document import Document
from dasklab.model.experiment import Experiment
from dasklab.model.files import (
    AGAIN,
    Campaign,
    Failed,
    ObservedCluster,
    ObservedFault,
    ObservedFaults,
    Outcome,
    Sample,
    Simulation,
    Timings,
)
from dasklab.model.hosts import host_names
from dasklab.model.nic import NicSettings
from dasklab.model.settings import Workload
from dasklab.model.simulated import SimulatedSetup
from dasklab.model.strict import Strict
from dasklab.model.trial import Setup, Trial
from dasklab.predict import farm
from dasklab.predict.calibrate import calibrate_each
from dasklab.predict.calibration import Calibration, dealt
from dasklab.predict.sources import sources
from dasklab.predict.validation import Validated
from dasklab.predict.whatif import scenario, threads
from dasklab.results.storage import store
from dasklab.running.trials import requested
from dasklab.sim.scenario import Scenario

FOLDER = "simulated"  # below that of the results
MOST_SEED = 2**32  # of PYTHONHASHSEED


class Known(Strict):
    """What one workload costs: a calibration for each trial of one setting."""

    workload: Workload
    calibrations: tuple[Calibration, ...]


class Calibrations(Document):
    """Of a simulated run: all that its trials are simulated from."""

    FILE: ClassVar[str] = "calibrations.json"

    known: tuple[Known, ...]

    @classmethod
    def on(cls, path: Path, experiment: Experiment, told: Callable[[str], None]) -> Calibrations:
        """Calibrate each workload of an experiment on a trial, or on those of a run that are alike.

        Raises:
            LabError: no trial there tells what any of these workloads costs.
        """
        asked = [requested("", experiment, cell).workload for cell in cells(experiment)]
        known: list[Known] = []
        for directories in sources(path).values():
            workload = store.need(Trial, directories[0]).workload
            if workload in asked:
                told(f"calibrating {workload.name} on {', '.join(map(str, directories))}")
                try:
                    found = tuple(calibrate_each(directories).values())
                except LabError as why:
                    told(why.message)
                    continue
                known.append(Known(workload=workload, calibrations=found))
        if not known:
            names = ", ".join(dict.fromkeys(workload.name for workload in asked))
            raise LabError(
                f"{path}: no measured trial tells what {names} with these parameters costs",
                "measure one: dasklab run EXPERIMENT --only CELL",
            )
        return cls(known=tuple(known))

    def of(self, workload: Workload) -> tuple[Calibration, ...]:
        """Those of a workload, which must be known."""
        return next(known.calibrations for known in self.known if known.workload == workload)


@dataclass(frozen=True)
class SimulatedLab:
    """Trials in virtual time. A trial's seeds follow from the run's and from its cell, whatever its place."""

    calibrations: Calibrations
    seeds: int
    seed: int

    @classmethod
    def of(cls, run: Path) -> SimulatedLab:
        """The lab that a simulated run was begun with."""
        begun = store.read_run(run)
        seeds = begun.setup.simulated.seeds if begun.setup.simulated else 1
        return cls(store.need(Calibrations, run), seeds, begun.seed)

    def run_trial(self, directory: Path) -> int:
        """Simulate ``directory/trial.json`` with several seeds; leave its files there.

        One seed that does not get through is enough for the trial to fail.
        """
        trial = store.need(Trial, directory)
        calibrations = self.calibrations.of(trial.workload)
        outcomes = farm.simulate_all(self._scenarios(trial, calibrations))
        store.write(directory, Simulation(outcomes=tuple(outcomes)))
        if trial.faults:
            store.write(directory, ObservedFaults(hosts=_seen(outcomes)))
        if failures := [outcome for outcome in outcomes if outcome.failed]:
            store.write(directory, _failed(directory, trial, failures))
            return 1
        store.write(directory, _timings(trial, calibrations[0], outcomes))
        return 0

    def reset(self) -> None:
        """Nothing is left behind."""

    def _scenarios(self, trial: Trial, calibrations: Sequence[Calibration]) -> Iterator[Scenario]:
        dice = Random(f"{self.seed}/{trial.block}/{trial.cell}/{trial.null}")
        # what a fault does to the first run is felt in those behind it: they go together
        runs = trial.runs if trial.faults else ceil(trial.runs / self.seeds)
        seeds = [dice.randrange(MOST_SEED) for _ in range(self.seeds)]
        for calibration, seed in dealt(calibrations, seeds):
            yield scenario(trial, calibration, {"runs": runs}, seed=seed)


def setup(path: Path, experiment: Experiment, calibrations: Calibrations, seeds: int) -> Setup:
    """The measured run's lab in virtual time, with as many workers as the experiment asks for.

    Raises:
        LabError: the trial is in no run's directory, which would say what its lab was.
    """
    measured = store.read_run(path if (path / Campaign.FILE).exists() else path.parent).setup
    workers = max(requested("", experiment, cell).workers for cell in cells(experiment))
    every = tuple(dict.fromkeys([*measured.hosts, *host_names(workers)]))
    first = "worker-1"
    card = measured.nics.get(first, NicSettings())
    return measured.model_copy(
        update={
            "hosts": every,
            "nics": {host: measured.nics.get(host, card) for host in every},
            "guests": {
                host: measured.guests.get(host, measured.guests[first]) for host in every if measured.guests
            },
            "simulated": SimulatedSetup(
                origin=str(path),
                workloads=tuple(known.workload for known in calibrations.known),
                seeds=seeds,
                prediction_error=Validated.read().missed,
            ),
        }
    )


def _seen(outcomes: list[Outcome]) -> dict[str, ObservedFault]:
    """As if of one lab: what one seed's runs were too short for was not seen, an end that one saw was."""
    found = dict(outcomes[0].faults)
    for outcome in outcomes[1:]:
        for host, seen in outcome.faults.items():
            lasted_s = found[host].lasted_s or seen.lasted_s
            found[host] = (seen if seen.at_s is None else found[host]).model_copy(
                update={"lasted_s": lasted_s}
            )
    return found


def _failed(directory: Path, trial: Trial, failures: list[Outcome]) -> Failed:
    again = f"dasklab reproduce {directory.parent} {trial.cell}"
    reasons = (*(f"seed {outcome.seed}: {outcome.failed}" for outcome in failures), f"{AGAIN}{again}")
    return Failed(status="failed", host="client", task="simulate", reasons=reasons)


def _timings(trial: Trial, calibration: Calibration, outcomes: list[Outcome]) -> Timings:
    workers = min(trial.workers if one.workers is None else one.workers for one in outcomes)
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
    """The runs of all seeds; each seed's clock begins at 0."""
    for outcome in outcomes:
        begun = 0.0
        for number, run in enumerate(outcome.runs):
            yield Sample(
                run=number,
                warmup=run.warmup,
                start=begun,
                stop=begun + run.duration_s,
                duration_s=run.duration_s,
                transfer_bytes=run.transfer_bytes,
                ok=True,
            )
            begun += run.duration_s
