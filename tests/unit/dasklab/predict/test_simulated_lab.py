"""A simulated run has the files, tables and report of any run, and is never mistaken for a measured one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab import records, report
from dasklab.cli import main
from dasklab.comparison import runs
from dasklab.console.trials.simulated import Calibrated, go_on
from dasklab.errors import LabError
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import Outcome, Result, SimulatedRepeat, Simulation
from dasklab.model.settings.trial_settings import Workload
from dasklab.predict import simulated_lab
from dasklab.predict.calibration import Calibration
from dasklab.predict.engine import processes
from dasklab.predict.simulated_lab import Calibrations, WorkloadCalibrations
from dasklab.predict.validation import Validated
from dasklab.results import load
from dasklab.results.run import Run, Trial
from dasklab.results.statistics.answers import answer
from dasklab.results.storage import documents
from dasklab.running.driver import driver
from dasklab.running.plan.trials import plan
from dasklab.sim.scenario import Scenario

from tests.unit.dasklab.conftest import SETUP, FakeLab
from tests.unit.dasklab.predict.samples import CALIBRATION

CAPS = {
    "title": "Caps",
    "question": "Q?",
    "metrics": {"compute_s": "fig14", "transfer_mb": None, "rtt_ms": None},
    "factors": {"rate_mbit": {"sets": "nics.cluster.rate_mbit", "levels": [0, 100]}},
    "repeats": 5,
    "blocks": 1,
}
REFUSAL = "this run was simulated; costs can be taken from measured runs only"


def outcome(scenario: Scenario) -> Outcome:
    """A run takes 2 s without a rate cap and 4 s with one, plus up to 0.1 s that depend on the seed."""
    capped = scenario.rates_mbit["worker-1"] < 1000
    duration_s = (4.0 if capped else 2.0) + scenario.seed / 2**32 / 10
    run = SimulatedRepeat(warmup=False, duration_s=duration_s, transfer_bytes=5_000_000)
    warmup = run.model_copy(update={"warmup": True})
    return Outcome(
        seed=scenario.seed,
        repeats=(warmup,) * scenario.warmups + (run,) * scenario.repeats,
        digest="d",
        messages=1,
        ops={},
        unknown=(),
        cpu_s=0.1,
    )


@pytest.fixture
def simulations(monkeypatch: pytest.MonkeyPatch) -> list[Scenario]:
    """Replace simulations by `outcome`; returns the scenarios that were simulated."""
    simulated: list[Scenario] = []

    def simulate_all(scenarios: Iterable[Scenario]) -> list[Outcome]:
        requested = list(scenarios)
        simulated.extend(requested)
        return [outcome(scenario) for scenario in requested]

    monkeypatch.setattr(processes, "simulate_all", simulate_all)
    return simulated


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A measured run, ``results/caps/<time>``."""
    content = Experiment.model_validate(CAPS)
    ongoing = driver.start(tmp_path / "results", "caps", content, SETUP, quick=False)
    driver.execute(ongoing, FakeLab(), lambda trial, state: None)
    return ongoing.stored.folder


@pytest.fixture
def predicted(measured: Path, simulations: list[Scenario], capsys: pytest.CaptureFixture[str]) -> Path:
    """The same experiment simulated, ``results/simulated/caps/<time>``."""
    return simulate(measured, Experiment.model_validate(CAPS), name="caps")


def calibrated(source: Path, content: Experiment, seeds: int = 2) -> Calibrated:
    entry = WorkloadCalibrations(workload=Workload(), calibrations=(CALIBRATION,))
    calibrations = Calibrations(workloads=(entry,))
    return Calibrated(calibrations, simulated_lab.setup(Run(source), content, calibrations, seeds))


def simulate(
    source: Path,
    content: Experiment,
    *,
    name: str = "mine",
    root: Path | None = None,
    only: str | None = None,
) -> Path:
    results = source.parents[1] if root is None else root
    run = calibrated(source, content).start(results, name, content, quick=False, seed=None, only=only)
    return run.folder


def command(*argv: object) -> str:
    result = CliRunner().invoke(main, [str(word) for word in argv])
    return f"{result.exit_code} {result.output}"


def changed(**changes: object) -> Experiment:
    return Experiment.model_validate(CAPS | changes)


# --- trials, seeds, intervals ------------------------------------------------------------------------------


def test_simulated_run_has_the_same_trials_tables_and_verdicts(
    predicted: Path, simulations: list[Scenario]
) -> None:
    results = [trial.result for trial in Run(predicted).trials]
    assert sorted(result.cell for result in results) == ["rate_mbit=0", "rate_mbit=0", "rate_mbit=100"]
    assert [result.status for result in results] == ["ok"] * 3
    frame = load(predicted)
    times = frame[(frame.metric == "compute_s") & ~frame.warmup]
    assert set(times.groupby("cell").value.count()) == {2 * 6, 6}  # 5 repeats dealt to two seeds: three each
    assert times.value[times.cell == "rate_mbit=100"].between(4.0, 4.1).all()
    assert times.value[times.cell == "rate_mbit=0"].between(2.0, 2.1).all()
    assert frame.simulated.all()
    assert len({scenario.seed for scenario in simulations}) == 6  # the null trial has seeds of its own


def test_intervals_include_the_prediction_error(
    measured: Path, simulations: list[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Validated, "prediction_error", 0.25)
    frame = load(simulate(measured, changed(blocks=2), name="caps"))
    assert set(frame.prediction_error) == {0.25}
    result = answer(frame, "compute_s", ["rate_mbit"])
    slow = result.cell("rate_mbit=100") if result else None
    assert slow is not None
    # By seeds alone: 4 to 4.1 s, x 2 the baseline, 2 s more than it
    assert slow.median.low <= 4.1 / 1.25 and slow.median.high >= 4.0 * 1.25
    assert slow.ratio.low <= 2.05 / 1.25 and slow.ratio.high >= 1.95 * 1.25
    assert slow.difference.low <= 2.1 - 4.0 * 0.2 and slow.difference.high >= 1.9 + 4.0 * 0.25
    assert set(load(measured).prediction_error) == {0.0}


def test_trial_stores_the_outcome_of_each_seed(predicted: Path) -> None:
    trial = Run(predicted).trials[0].folder
    seeds = [outcome.seed for outcome in documents.require(Simulation, trial).outcomes]
    assert len(set(seeds)) == 2


def test_cell_simulated_alone_has_the_same_seeds(
    measured: Path, predicted: Path, simulations: list[Scenario]
) -> None:
    def seeds() -> set[int]:
        return {scenario.seed for scenario in simulations if scenario.rates_mbit["worker-1"] < 1000}

    before = seeds()
    simulations.clear()
    root = measured.parents[1] / "again"
    simulate(measured, Experiment.model_validate(CAPS), name="caps", root=root, only="rate_mbit=100")
    assert seeds() == before


def test_interrupted_run_resumes_with_its_own_calibrations(
    predicted: Path, simulations: list[Scenario]
) -> None:
    trial = Run(predicted).trials[1].folder
    before = documents.require(Simulation, trial)
    (trial / Result.FILE).unlink()
    simulations.clear()
    go_on(driver.resume(Run(predicted)))
    assert documents.require(Simulation, trial) == before and len(simulations) == 2


def test_seeds_are_dealt_to_the_calibrations_in_turn(measured: Path, simulations: list[Scenario]) -> None:
    content = Experiment.model_validate(CAPS)
    slower = CALIBRATION.model_copy(update={"driver_s": 2 * CALIBRATION.driver_s})
    entry = WorkloadCalibrations(workload=Workload(), calibrations=(CALIBRATION, slower))
    calibrations = Calibrations(workloads=(entry,))
    setup = simulated_lab.setup(Run(measured), content, calibrations, 3)
    start = Calibrated(calibrations, setup).start
    start(measured.parents[1], "caps", content, quick=False, seed=None, only=None)
    trials = [simulations[at : at + 3] for at in range(0, len(simulations), 3)]
    assert len(trials) == 3
    for trial in trials:
        factors = [scenario.driver_s / CALIBRATION.driver_s for scenario in trial]
        assert factors == pytest.approx([1, 2, 1])


# --- what can be simulated ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"nics": {"workers": {"model": "e1000"}}},
            "NIC e1000 of worker-1, worker-2, worker-3: its costs",
        ),
        ({"scheduler": {"variant": "random"}}, "a cluster with other programs than Dask's"),
        ({"worker": {"variant": "zero"}}, "a cluster with other programs than Dask's"),
        ({"layout": "2x1"}, "several workers on a host (2x1)"),
        ({"links": {"worker-1": {"delay_ms": 1, "reorder_pct": 5}}}, "links.worker-1.reorder_pct"),
        ({"links": {"worker-1": {"rate_mbit": 5, "policer": True}}}, "links.worker-1.policer"),
        ({"dask": {"distributed": {"comm": {"compression": "lz4"}}}}, "dask distributed.comm.compression"),
        ({"workload": {"name": "merge", "params": {"tasks": 7}}}, "workload merge with tasks 7: no trial of"),
    ],
)
def test_cell_that_cannot_be_simulated_is_unsupported_with_its_reason(
    measured: Path, settings: dict[str, object], reason: str
) -> None:
    content = changed(factors={"f": {"levels": {"unchanged": {}, "other": settings}}})
    trials = plan("caps", content, calibrated(measured, content).setup)
    by_cell = {trial.cell: trial.unsupported for trial in trials if not trial.null}
    assert by_cell["f=unchanged"] == ()
    assert len(by_cell["f=other"]) == 1 and by_cell["f=other"][0].startswith(reason)


def test_more_workers_than_the_lab_has_and_variants_of_settings_can_be_simulated(
    measured: Path, simulations: list[Scenario]
) -> None:
    levels = {"3": {}, "12": {"workers": 12, "scheduler": {"variant": "no-stealing"}}}
    simulate(measured, changed(factors={"workers": {"levels": levels}}))
    twelve = [scenario for scenario in simulations if scenario.workers == 12]
    assert len(twelve) == 2 and twelve[0].rates_mbit["worker-12"] == 9000
    assert twelve[0].dask["distributed"]["scheduler"]["work-stealing"] is False


def test_threads_are_those_of_the_layout(measured: Path, simulations: list[Scenario]) -> None:
    levels = {"unchanged": {}, "four": {"layout": "1x4"}}
    simulate(measured, changed(factors={"layout": {"levels": levels}}))
    assert {scenario.threads for scenario in simulations} == {CALIBRATION.threads, 4}


# --- never mistaken for a measured run ---------------------------------------------------------------------


def test_measured_and_simulated_runs_are_never_in_one_table(measured: Path, predicted: Path) -> None:
    with pytest.raises(LabError, match="there are measured and simulated runs, which cannot be one table"):
        load(measured.parents[1])
    assert not load(measured).simulated.any()
    with pytest.raises(LabError, match=r"not comparable: .*simulated from None and "):
        runs.compare_runs(Run(measured), Run(predicted))
    assert "new, simulated" in command("results", "compare", measured, predicted, "--anyway")


def test_every_table_is_marked_as_simulated(measured: Path, predicted: Path) -> None:
    lines = command("results", "--results", measured.parents[1]).splitlines()
    assert [("simulated" in line.split()[-1], str(predicted) in line) for line in lines[1:]] == [
        (False, False),
        (True, True),
    ]
    tables = command("results", "show", predicted)
    assert f"Simulated, not measured: with the costs of {measured}." in tables
    assert "(rtt_ms): not simulated" in tables
    unfolded = " ".join(tables.split())  # a long heading takes two lines
    assert "(compute_s), simulated" in unfolded and "(transfer_mb), simulated" in unfolded
    assert "simulated" not in command("results", "show", measured).lower()


def test_report_marks_simulated_figures_and_draws_no_verdict_from_them(
    measured: Path, predicted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[str] = []
    monkeypatch.setattr(report.pages.pictures, "label_figure", lambda figure, word: marks.append(word))
    page = report.write([Run(measured), Run(predicted)], tmp_path / "page").read_text()
    assert page.count(f"simulated with the costs measured in {measured}, not measured") == 1
    assert page.count('<section id="caps">') == page.count('<section id="simulated-caps">') == 1
    assert page.count("every cell</summary>") == 5 and page.count(", simulated: every cell</summary>") == 2
    assert page.count("<figcaption>Simulated. ") == 2 == len(marks)
    drawn = {path.stem for path in (tmp_path / "page").glob("*.png")}
    both = {f"{kind}caps-{metric}" for kind in ("", "simulated-") for metric in ("compute_s", "transfer_mb")}
    assert drawn == both | {"caps-rtt_ms"}
    text = (tmp_path / "page" / "report.md").read_text()
    assert "## Caps, simulated" in text and f"dasklab run {predicted} --only CELL" in text


def test_simulated_run_cannot_be_calibrated_on(predicted: Path, tmp_path: Path) -> None:
    assert command("whatif", predicted) == f"1 dasklab: {predicted}: {REFUSAL}\n"
    path = tmp_path / "mine.yml"
    path.write_text(json.dumps(CAPS))
    assert REFUSAL in command("run", path, "--simulate", "--from", predicted)


# --- calibrating on a run ----------------------------------------------------------------------------------


def test_simulate_and_from_go_together(measured: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(json.dumps(CAPS))
    for words in (["--simulate"], ["--from", measured]):
        assert "use --simulate and --from together" in command("run", path, *words)
    output = command("run", path, "--simulate", "--from", measured)
    assert "no valid trial that can be simulated has records of Dask" in output


def test_workload_without_a_measured_trial_is_named(measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "recorded", lambda folder: True)
    other = changed(workload={"name": "merge", "params": {"tasks": 7}})
    with pytest.raises(LabError, match="no measured trial shows the costs of merge with these parameters"):
        Calibrations.from_measured(Run(measured), other, print)


def test_run_is_calibrated_on_all_trials_of_the_baselines_setting(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def calibrate(trial: Trial) -> Calibration:
        folders.append(trial.folder)
        return CALIBRATION.model_copy(update={"trial": trial.name})

    monkeypatch.setattr(records, "recorded", lambda folder: True)
    monkeypatch.setattr("dasklab.predict.calibrate.calibrate", calibrate)
    lines: list[str] = []
    calibrations = Calibrations.from_measured(Run(measured), Experiment.model_validate(CAPS), lines.append)
    trials = [documents.require(RequestedTrial, folder) for folder in folders]
    assert sorted((trial.baseline, trial.null) for trial in trials) == [(False, True), (True, False)]
    assert len(lines) == 1
    [entry] = calibrations.workloads
    assert entry.workload == Workload()
    assert [calibration.trial for calibration in entry.calibrations] == [folder.name for folder in folders]


def test_workload_that_cannot_be_calibrated_on_is_reported_and_left_out(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def calibrate(trial: Trial) -> Calibration:
        raise LabError(f"{trial.name}: no Dask records")

    monkeypatch.setattr(records, "recorded", lambda folder: True)
    monkeypatch.setattr("dasklab.predict.calibrate.calibrate", calibrate)
    lines: list[str] = []
    with pytest.raises(LabError, match="no measured trial shows the costs of array_study"):
        Calibrations.from_measured(Run(measured), Experiment.model_validate(CAPS), lines.append)
    assert lines[1].endswith(": no Dask records")


def test_trial_that_cannot_be_calibrated_on_leaves_the_others(
    measured: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folders: list[Path] = []

    def calibrate(trial: Trial) -> Calibration:
        folders.append(trial.folder)
        if len(folders) == 1:
            raise LabError(f"{trial.folder}/records.json: its records cannot be unpacked")
        return CALIBRATION

    monkeypatch.setattr(records, "recorded", lambda folder: True)
    monkeypatch.setattr("dasklab.predict.calibrate.calibrate", calibrate)
    calibrations = Calibrations.from_measured(
        Run(measured), Experiment.model_validate(CAPS), lambda line: None
    )
    assert len(calibrations.workloads[0].calibrations) == len(folders) - 1 > 0
    assert f"{folders[0]}/records.json: its records cannot be unpacked" in caplog.text
