"""ObservedFaults in simulated labs: told as the lab tells them, done once more; hangs are results."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.commands import progress, target
from dasklab.commands.simulated import Calibrated
from dasklab.errors import LabError
from dasklab.model.experiment import Experiment
from dasklab.model.files import ObservedFault, ObservedFaults, Outcome, Result, SimulatedRun, Timings
from dasklab.model.settings import Workload
from dasklab.model.trial import Trial
from dasklab.predict import farm, simulated_lab
from dasklab.predict.calibrate import calibrate
from dasklab.predict.simulated_lab import Calibrations, Known
from dasklab.predict.whatif import scenario as scenario_of
from dasklab.results.storage import store
from dasklab.running import driver
from dasklab.sim.scenario import Scenario

from tests.unit.dasklab.conftest import SETUP, FakeLab
from tests.unit.dasklab.predict.test_whatif import CALIBRATION, TRIAL
from tests.unit.dasklab.sim.samples import CUT, KILL

FILE = {
    "title": "ObservedFaults",
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
    "runs": 4,
    "blocks": 1,
    "ttl_s": 60,
}  # fmt: skip
HUNG = "it hung, it was not done within 60 s of virtual time: 2 workers; tasks: 1 no-worker"


class Simulations:
    """Stand-ins: 2 s a run; ``hung`` seeds of trials with faults hang, ``digest`` is what each says."""

    def __init__(self) -> None:
        self.asked: list[Scenario] = []
        self.hung = False
        self.digest = "d"

    def all(self, scenarios: Iterable[Scenario]) -> list[Outcome]:
        mine = list(scenarios)
        self.asked += mine
        return [self._one(scenario) for scenario in mine]

    def _one(self, scenario: Scenario) -> Outcome:
        hung = self.hung and bool(scenario.faults)
        run = SimulatedRun(warmup=False, duration_s=2.0 + scenario.seed / 2**32, transfer_bytes=5_000_000)
        found = {"cut": "down", "kill": "inactive"}
        return Outcome(
            seed=scenario.seed, runs=() if hung else (run,) * scenario.runs, digest=self.digest, messages=1,
            ops={}, unknown=(), cpu_s=0.1, failed=HUNG if hung else None, hung=hung,
            workers=2 if scenario.faults and scenario.faults[0].does == "kill" else 3,
            faults={
                fault.host: ObservedFault(
                    at_s=float(str(fault.at_s)), lasted_s=fault.for_s, state=found[fault.does]
                )
                for fault in scenario.faults
            },
        )  # fmt: skip


@pytest.fixture
def simulations(monkeypatch: pytest.MonkeyPatch) -> Simulations:
    made = Simulations()
    monkeypatch.setattr(farm, "simulate_all", made.all)
    return made


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    begun = driver.start(tmp_path / "results", "f", Experiment.model_validate(FILE), SETUP, quick=False)
    driver.execute(begun, FakeLab(), lambda trial, state: None)
    return begun.directory


def foretell(measured: Path) -> Path:
    content = Experiment.model_validate(FILE)
    known = Calibrations(known=(Known(workload=Workload(), calibrations=(CALIBRATION,)),))
    calibrated = Calibrated(known, simulated_lab.setup(measured, content, known, 2))
    return calibrated.start(measured.parents[1] / "a", "f", content, quick=False, seed=7, only=None)


def cell(run: Path, name: str) -> Path:
    return next(one for one in store.having(run, Trial) if store.need(Trial, one).cell == name)


def ask(*argv: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in argv], catch_exceptions=False)
    return f"{done.exit_code} {done.output}"


def test_a_trial_with_faults_is_simulated_whole_and_leaves_the_labs_file(
    measured: Path, simulations: Simulations, capsys: pytest.CaptureFixture[str]
) -> None:
    run = foretell(measured)
    assert {store.need(Result, trial).status for trial in store.finished(run)} == {"ok"}
    kill = cell(run, "fault=kill")
    asked = [one for one in simulations.asked if one.faults and one.faults[0].does == "kill"]
    assert [(one.runs, one.limit_s) for one in asked] == [(4, 60)] * 2
    assert {one.runs for one in simulations.asked if not one.faults} == {2}
    at_s = store.need(Trial, kill).faults[0].at_s
    assert store.need(ObservedFaults, kill).hosts == {
        "worker-2": ObservedFault(at_s=at_s, lasted_s=None, state="inactive")
    }
    assert store.need(Timings, kill).cluster.workers == 2
    assert store.read(ObservedFaults, cell(run, "fault=none")) is None


def test_a_fault_that_one_seed_was_too_quick_for_was_not_seen(
    measured: Path, simulations: Simulations, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = simulations.all

    def last_too_quick(scenarios: Iterable[Scenario]) -> list[Outcome]:
        *others, last = whole(scenarios)
        missed = {host: ObservedFault(at_s=None, lasted_s=None, state="nothing") for host in last.faults}
        return [*others, last.model_copy(update={"faults": missed})]

    monkeypatch.setattr(farm, "simulate_all", last_too_quick)
    result = store.need(Result, cell(foretell(measured), "fault=kill"))
    assert result.status == "invalid"
    assert "it was not seen: the runs took" in result.reasons[0]


def test_a_hang_is_a_result_with_its_seed_faults_and_command(
    measured: Path, simulations: Simulations
) -> None:
    simulations.hung = True
    run = foretell(measured)
    result = store.need(Result, cell(run, "fault=cut"))
    seed = next(one.seed for one in simulations.asked if one.faults and one.faults[0].does == "cut")
    assert result.status == "failed"
    assert result.reasons[0] == f"seed {seed}: {HUNG}"
    assert result.reasons[-2:] == (
        f"again: dasklab reproduce {run} fault=cut",
        "with cut of worker-1 at 0.05 s for 0.5 s (seed 7)",
    )


def test_a_simulated_cell_is_reproduced_to_the_last_digit_or_not(
    measured: Path, simulations: Simulations, tmp_path: Path
) -> None:
    run = foretell(measured)
    before = {one.seed for one in simulations.asked if one.faults and one.faults[0].does == "kill"}
    simulations.asked.clear()
    told = ask("reproduce", run, "fault=kill", "--results", tmp_path / "again")
    assert told.startswith("0 ") and told.endswith("The same to the last digit.\n")
    assert {one.seed for one in simulations.asked if one.faults} == before
    simulations.digest = "other"
    told = ask("reproduce", run, "fault=kill", "--results", tmp_path / "other")
    assert told.endswith("Not the same: lab/dasklab/sim/README.md says what that hangs on (Determinism).\n")
    [seed] = [line for line in told.splitlines() if f"seed {min(before)}" in line]
    assert seed.split()[-3:] == ["d", "other", "other"]


def test_a_hang_is_reproduced(measured: Path, simulations: Simulations, tmp_path: Path) -> None:
    simulations.hung = True
    run = foretell(measured)
    told = ask("reproduce", run, "fault=cut", "--results", tmp_path / "again")
    assert "it hung" in told and told.endswith("The same to the last digit.\n")


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(4.0, "within what chance does"), (8.0, "more than chance does")]
)
def test_a_measured_cell_is_reproduced_in_the_lab(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seconds: float, verdict: str
) -> None:
    content = Experiment.model_validate(FILE | {"blocks": 2})
    begun = driver.start(tmp_path / "results", "f", content, SETUP, quick=False)
    driver.execute(begun, FakeLab(), lambda trial, state: None)
    fake = FakeLab(seconds=lambda trial: seconds)
    for name, stand_in in (
        ("locked", lambda *_, **__: nullcontext()),
        ("setup_of", lambda inventory: SETUP),
        ("Inventory", lambda path: path),
        ("AnsibleLab", lambda path: fake),
        ("_waiter", lambda *_: lambda: None),
    ):
        monkeypatch.setattr(progress, name, stand_in)
    monkeypatch.setattr(target, "require_machines", lambda lab: None)
    told = ask("reproduce", begun.directory, "fault=none", "--results", tmp_path / "again")
    [line] = [line for line in told.splitlines() if line.startswith("compute_s: ")]
    assert line.startswith("compute_s: 4.0") and line.endswith(verdict)
    assert len(fake.ran) == 4  # the cell, and its null trial, in each block


def test_a_cell_that_was_not_done_is_one_line(measured: Path) -> None:
    said = ask("reproduce", measured, "fault=quake")
    assert said.startswith(
        f"1 dasklab: {measured}: no trial of a cell 'fault=quake' was done; allowed: fault="
    )


def test_costs_are_not_taken_from_a_trial_with_faults(measured: Path) -> None:
    with pytest.raises(LabError, match="it had faults; costs are taken from trials without"):
        calibrate(cell(measured, "fault=kill"))


def test_workers_that_are_only_state_machines_have_no_faults() -> None:
    trial = TRIAL.model_validate(json.loads(TRIAL.to_json()) | {"faults": [KILL]})
    assert scenario_of(trial, CALIBRATION, seed=1).limit_s == trial.ttl_s
    with pytest.raises(LabError, match=r"^faults: workers that are only state machines have no connections"):
        scenario_of(trial, CALIBRATION, {"design": "light"}, seed=1)
    with pytest.raises(LabError, match=r"^--set workers: faults\.0\.host: no 'worker-2' to kill"):
        scenario_of(trial, CALIBRATION, {"workers": 1}, seed=1)
