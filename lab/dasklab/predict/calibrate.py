"""Calibrate: derive the costs of a trial from the files in its directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dasklab import records
from dasklab.breakdown.model.repeat import Repeat
from dasklab.breakdown.show.explain import explain
from dasklab.errors import LabError
from dasklab.model.files import Configured, Measured, Timings
from dasklab.notices import warn
from dasklab.predict import recorded, trial_cores, trial_links
from dasklab.predict.calibration import Calibration
from dasklab.predict.engine import processes
from dasklab.predict.whatif import scenario
from dasklab.records import Frames
from dasklab.results.run import Trial, read_document
from dasklab.sim.costs import Costs, Role
from dasklab.sim.scenario import Scenario

FITTING_ROUNDS = 3  # each fits costs to the operations that a simulation with these costs makes
COUNTED_REPEATS = 2  # timed ones, in each of these simulations


def calibrations_of(trials: Sequence[Trial], file: Path | None = None) -> tuple[Calibration, ...]:
    """Calibrate on trials and write each calibration beside its trial; or read one from a file.

    Raises:
        LabError: there is no such file, or no trial can be calibrated on.
    """
    if file is not None:
        return (read_document(Calibration, file),)
    by_trial = calibrate_each(trials)
    for trial, calibration in by_trial.items():
        trial.write_computed(calibration)
    return tuple(by_trial.values())


def calibrate_each(trials: Sequence[Trial]) -> dict[Trial, Calibration]:
    """Calibrate on equal trials. A trial that cannot be calibrated on is left out with a warning.

    Raises:
        LabError: none can be calibrated on; the reason is that of the first.
    """
    calibrations, failures = {}, []
    for trial in trials:
        try:
            calibrations[trial] = calibrate(trial)
        except LabError as error:
            failures.append(error)
    if not calibrations:
        raise failures[0]
    for failure in failures:
        warn(f"{failure.message}; no costs are taken from the trial")
    return calibrations


def calibrate(stored: Trial) -> Calibration:
    """Derive the costs of a trial.

    Raises:
        LabError: the trial had faults, or lacks Dask's records.
    """
    trial = stored.requested
    if trial.faults:
        raise LabError(f"{stored}: this trial had faults; costs can be taken from trials without faults only")
    repeats = explain(stored).timed
    if not repeats:
        raise LabError(f"{stored}: no Dask records were found for any timed repeat")
    frames = records.tables_of(stored)
    calibration = _without_costs(stored, repeats, frames)
    few_repeats = {"repeats": min(COUNTED_REPEATS, trial.repeats)}
    return fit(
        calibration,
        lambda calibration: scenario(trial, calibration, few_repeats, seed=0),
        repeats,
        recorded.handoff_s(frames),
        executions=few_repeats["repeats"] + trial.warmups,
    )


def fit(
    calibration: Calibration,
    scenario_of: Callable[[Calibration], Scenario],
    repeats: Sequence[Repeat],
    recorded_handoff_s: float,
    *,
    executions: int,
    scheduler_s: float = 0.0,
) -> Calibration:
    """Return a calibration with the costs of event loops and the handoff of tasks.

    The records say how busy event loops were; a simulation counts the operations that they were busy with.
    The first simulation is without costs. The next ones have the costs found so far, because a repeat that
    takes longer has more heartbeats, and its messages are batched differently. The time that tasks spend in
    these simulations waiting for their event loop or a core is subtracted from the recorded handoff.

    Args:
        scenario_of: returns the scenario without a change, with the costs of a calibration.
        executions: how often a simulation executes what a repeat is, warm-ups included.
        scheduler_s: how long the scheduler's loop was busy in a repeat with what costs nothing more.
    """
    for _ in range(FITTING_ROUNDS):
        outcome = processes.simulate(scenario_of(calibration))
        ops: dict[Role, float] = {"scheduler": 1.0, "worker": 1.0}
        for name, count in outcome.ops.items():
            role = _role(name)
            ops[role] = ops.get(role, 0.0) + count / executions
        missing_s = max(0.0, calibration.handoff_s + recorded_handoff_s - outcome.handoff_s)
        costs = recorded.costs(repeats, ops)
        scheduler = max(0.0, costs["scheduler"].op_s - scheduler_s / ops["scheduler"])
        costs["scheduler"] = Costs(op_s=scheduler)
        calibration = calibration.model_copy(update={"costs": costs, "handoff_s": missing_s})
    return calibration


def _role(name: str) -> Role:
    return "scheduler" if name == "scheduler" else "client" if name == "client" else "worker"


def _without_costs(stored: Trial, repeats: list[Repeat], frames: Frames) -> Calibration:
    """Return everything of a calibration that needs no simulation."""
    trial, hosts = stored.requested, stored.hosts
    measured, configured = stored.measured or Measured(), stored.configured or Configured()
    granted = trial_cores.granted(hosts) if hosts else 1.0
    cores = trial_cores.shared_cores(hosts, configured, granted) if hosts else None
    calibration = Calibration(
        experiment=trial.experiment,
        trial=trial.trial,
        cell=trial.cell,
        machine=hosts.hypervisor.accel if hosts else "unknown",
        cores=cores and recorded.available_cores(frames, repeats, cores, granted),
        versions=stored.require(Timings).versions,
        tasks=recorded.task_samples(frames, granted),
        shuffled_bytes=recorded.shuffled_bytes(frames),
        behind=recorded.behind(frames, sorted(repeats[0].threads)),
        starved=recorded.starved(frames, granted),
        costs={},
        loop_cpu=recorded.loop_cpu(frames, repeats, granted),
        driver_s=recorded.driver_s(repeats),
        workers=trial.workers,
        threads=max(repeats[0].threads.values()),
        rtt_ms=trial_links.rtt_ms(trial, measured),
        uncapped_mbit=trial_links.uncapped_mbit(trial, measured),
        burst_bytes=trial_links.burst_bytes(configured),
        queue_bytes=trial_links.assumed_queue_bytes(configured),
        queue_origin="assumed",
    )
    queue_bytes = trial_links.measured_queue_bytes(trial, measured, calibration)
    if queue_bytes is None:
        return calibration
    return calibration.model_copy(update={"queue_bytes": queue_bytes, "queue_origin": "measured"})
