"""Faults in simulated labs: observed as in a real lab, reproducible to the last digit; a hang is a result."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.console.lab import target
from dasklab.console.trials import progress
from dasklab.console.trials.simulated import Calibrated
from dasklab.errors import LabError
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import ObservedFault, ObservedFaults, Outcome, Result, SimulatedRepeat, Timings
from dasklab.model.settings.trial_settings import Workload
from dasklab.predict import simulated_lab
from dasklab.predict.calibrate import calibrate
from dasklab.predict.engine import processes
from dasklab.predict.simulated_lab import Calibrations, WorkloadCalibrations
from dasklab.predict.whatif import scenario as scenario_of
from dasklab.results.run import Run, Trial
from dasklab.results.storage import documents
from dasklab.running.driver import driver
from dasklab.running.plan import capabilities
from dasklab.sim.faults import STATES
from dasklab.sim.scenario import Scenario

from tests.unit.dasklab.conftest import SETUP, FakeLab
from tests.unit.dasklab.predict.samples import CALIBRATION, TRIAL
from tests.unit.dasklab.sim.samples import CUT, KILL

FILE = {
    "title": "Faults",
    "question": "Q?",
    "metrics": {"compute_s": None},
    "factors": {
        "fault": {
            "levels": {
                "none": {},
                "kill": {"faults": [KILL | {"at_s": [0.5, 1.5]}]},
                "cut": {"faults": [CUT]},
            }
        }
    },
    "repeats": 4,
    "blocks": 1,
    "ttl_s": 60,
}  # fmt: skip
HUNG = "it hung, it was not done within 60 s of virtual time: 2 workers; tasks: 1 no-worker"


class Simulations:
    """Replaces simulations: a run takes 2 s and a little more, by seed.

    Attributes:
        scenarios: what was simulated.
        hung: trials with faults hang.
        digest: of every outcome.
    """

    def __init__(self) -> None:
        self.scenarios: list[Scenario] = []
        self.hung = False
        self.digest = "d"

    def simulate_all(self, scenarios: Iterable[Scenario]) -> list[Outcome]:
        requested = list(scenarios)
        self.scenarios += requested
        return [self._outcome(scenario) for scenario in requested]

    def with_fault(self, kind: str) -> list[Scenario]:
        return [scenario for scenario in self.scenarios if fault_of(scenario) == kind]

    def _outcome(self, scenario: Scenario) -> Outcome:
        hung = self.hung and bool(scenario.faults)
        run = SimulatedRepeat(warmup=False, duration_s=2.0 + scenario.seed / 2**32, transfer_bytes=5_000_000)
        observed = {
            fault.host: ObservedFault(
                at_s=float(str(fault.at_s)), lasted_s=fault.for_s, state=STATES[fault.does]
            )
            for fault in scenario.faults
        }
        return Outcome(
            seed=scenario.seed, repeats=() if hung else (run,) * scenario.repeats, digest=self.digest,
            messages=1,
            ops={}, unknown=(), cpu_s=0.1, failed=HUNG if hung else None, hung=hung,
            workers=2 if fault_of(scenario) == "kill" else 3, faults=observed,
        )  # fmt: skip


def fault_of(scenario: Scenario) -> str | None:
    return scenario.faults[0].does if scenario.faults else None


@pytest.fixture
def simulations(monkeypatch: pytest.MonkeyPatch) -> Simulations:
    replacement = Simulations()
    monkeypatch.setattr(processes, "simulate_all", replacement.simulate_all)
    return replacement


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    content = Experiment.model_validate(FILE)
    ongoing = driver.start(tmp_path / "results", "f", content, SETUP, quick=False)
    driver.execute(ongoing, FakeLab(), lambda trial, state: None)
    return ongoing.stored.folder


def simulate(measured: Path) -> Path:
    content = Experiment.model_validate(FILE)
    entry = WorkloadCalibrations(workload=Workload(), calibrations=(CALIBRATION,))
    calibrations = Calibrations(workloads=(entry,))
    calibrated = Calibrated(calibrations, simulated_lab.setup(Run(measured), content, calibrations, 2))
    run = calibrated.start(measured.parents[1] / "a", "f", content, quick=False, seed=7, only=None)
    return run.folder


def cell(run: Path, name: str) -> Path:
    return next(
        trial.folder
        for trial in Run(run).planned
        if trial.has(RequestedTrial) and trial.requested.cell == name
    )


def command(*argv: object) -> str:
    result = CliRunner().invoke(main, [str(word) for word in argv], catch_exceptions=False)
    return f"{result.exit_code} {result.output}"


# --- simulated trials --------------------------------------------------------------------------------------


def test_every_seed_of_a_trial_with_faults_has_all_runs_and_the_trial_has_the_labs_file(
    measured: Path, simulations: Simulations, capsys: pytest.CaptureFixture[str]
) -> None:
    run = simulate(measured)
    assert {trial.result.status for trial in Run(run).trials} == {"ok"}
    kill = cell(run, "fault=kill")
    runs_and_limits = [(scenario.repeats, scenario.limit_s) for scenario in simulations.with_fault("kill")]
    assert runs_and_limits == [(4, 60)] * 2
    assert {scenario.repeats for scenario in simulations.scenarios if not scenario.faults} == {2}
    at_s = documents.require(RequestedTrial, kill).faults[0].at_s
    assert documents.require(ObservedFaults, kill).hosts == {
        "worker-2": ObservedFault(at_s=at_s, lasted_s=None, state="inactive")
    }
    assert documents.require(Timings, kill).cluster.workers == 2
    assert documents.read(ObservedFaults, cell(run, "fault=none")) is None


def test_fault_is_not_observed_if_the_runs_of_one_seed_were_too_short(
    measured: Path, simulations: Simulations, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last_too_short(scenarios: Iterable[Scenario]) -> list[Outcome]:
        *others, last = simulations.simulate_all(scenarios)
        nothing = {host: ObservedFault(at_s=None, lasted_s=None, state="nothing") for host in last.faults}
        return [*others, last.model_copy(update={"faults": nothing})]

    monkeypatch.setattr(processes, "simulate_all", last_too_short)
    result = documents.require(Result, cell(simulate(measured), "fault=kill"))
    assert result.status == "invalid"
    assert "the repeats took" in result.reasons[0]


def test_hang_is_a_result_with_its_seed_faults_and_command(measured: Path, simulations: Simulations) -> None:
    simulations.hung = True
    run = simulate(measured)
    result = documents.require(Result, cell(run, "fault=cut"))
    assert result.status == "failed"
    assert result.reasons[0] == f"seed {simulations.with_fault('cut')[0].seed}: {HUNG}"
    assert result.reasons[-2:] == (
        f"again: dasklab run {run} --only fault=cut",
        "with cut of worker-1 at 0.05 s for 0.5 s (seed 7)",
    )


def test_a_fault_needs_its_worker() -> None:
    trial = TRIAL.model_validate(json.loads(TRIAL.to_json()) | {"faults": [KILL]})
    assert scenario_of(trial, CALIBRATION, seed=1).limit_s == trial.ttl_s
    with pytest.raises(LabError, match=r"^--set workers: faults\.0\.host: no 'worker-2' to kill"):
        scenario_of(trial, CALIBRATION, {"workers": 1}, seed=1)


def test_trial_with_faults_cannot_be_calibrated_on(measured: Path) -> None:
    with pytest.raises(LabError, match="costs can be taken from trials without faults only"):
        calibrate(Trial(cell(measured, "fault=kill")))


# --- a cell of a stored run again ---------------------------------------------------------------------------


def digests(run: Path) -> list[str]:
    return [
        outcome.digest
        for trial in Run(run).trials
        if trial.requested.cell == "fault=kill" and trial.simulation
        for outcome in trial.simulation.outcomes
    ]


def test_simulated_cell_is_simulated_again_from_the_same_seeds(
    measured: Path, simulations: Simulations, tmp_path: Path
) -> None:
    run = simulate(measured)
    seeds = {scenario.seed for scenario in simulations.with_fault("kill")}
    simulations.scenarios.clear()
    output = command("run", run, "--only", "fault=kill", "--results", tmp_path / "again")
    assert output.startswith("0 ")
    new = Path(output.split()[-1])
    assert output.endswith(f"to compare: dasklab results compare {run} {new}\n")
    assert {scenario.seed for scenario in simulations.with_fault("kill")} == seeds
    assert digests(new) == digests(run) != []


def test_measured_cell_is_measured_again_in_the_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = Experiment.model_validate(FILE | {"blocks": 2})
    ongoing = driver.start(tmp_path / "results", "f", content, SETUP, quick=False)
    driver.execute(ongoing, FakeLab(), lambda trial, state: None)
    lab = FakeLab()
    for name, replacement in (
        ("locked", lambda *_, **__: nullcontext()),
        ("Inventory", lambda path: path),
        ("AnsibleLab", lambda path: lab),
        ("_waiter", lambda *_: lambda: None),
    ):
        monkeypatch.setattr(progress, name, replacement)
    monkeypatch.setattr(capabilities, "setup_for", lambda *_: SETUP)
    monkeypatch.setattr(target, "require_machines", lambda lab: None)
    old = ongoing.stored.folder
    output = command("run", old, "--only", "fault=none", "--results", tmp_path / "again")
    assert output.startswith("0 ")
    assert Run(Path(output.split()[-1])).document.seed == Run(old).document.seed
    assert len(lab.ran) == 4  # the cell and its null trial in each block


def test_unknown_cell_is_reported_in_one_line(measured: Path) -> None:
    assert "fault=quake" in command("run", measured, "--only", "fault=quake")


def test_options_that_continue_a_run_are_refused_for_a_new_one(measured: Path) -> None:
    refused = "with --only a new run begins"
    assert refused in command("run", measured, "--only", "fault=none", "--blocks", 2)
    assert (
        "simul"
        in command("run", measured, "--only", "fault=none", "--on", "tcp://127.0.0.1:1").split("\n")[0]
    )
