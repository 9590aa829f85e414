"""A simulated run is a run like others, and is never taken for a measured one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab import record, report
from dasklab.cli import main
from dasklab.commands.simulated import Calibrated, go_on
from dasklab.errors import LabError
from dasklab.model.experiment import Experiment
from dasklab.model.files import Outcome, Result, SimulatedRun, Simulation
from dasklab.model.settings import Workload
from dasklab.model.trial import Trial
from dasklab.predict import farm, simulated_lab
from dasklab.predict.calibration import Calibration
from dasklab.predict.simulated_lab import Calibrations, Known
from dasklab.predict.validation import Validated
from dasklab.results import load
from dasklab.results.statistics import compare
from dasklab.results.statistics.answers import answer
from dasklab.results.storage import store
from dasklab.running import driver
from dasklab.running.trials import plan
from dasklab.sim.scenario import Scenario

from tests.unit.dasklab.conftest import SETUP, FakeLab
from tests.unit.dasklab.predict.test_whatif import CALIBRATION

CAPS = {
    "title": "Caps",
    "question": "Q?",
    "metrics": {"compute_s": "fig14", "transfer_mb": None, "rtt_ms": None},
    "factors": {"rate_mbit": {"sets": "nics.cluster.rate_mbit", "levels": [0, 100]}},
    "runs": 5,
    "blocks": 1,
}


def outcome(scenario: Scenario) -> Outcome:
    """2 s a run where links have no cap, else 4 s; give or take what the seed says."""
    took = (4.0 if scenario.rates_mbit["worker-1"] < 1000 else 2.0) + scenario.seed / 2**32 / 10
    run = SimulatedRun(warmup=False, duration_s=took, transfer_bytes=5_000_000)
    warmups = (run.model_copy(update={"warmup": True}),) * scenario.warmups
    return Outcome(
        seed=scenario.seed,
        runs=warmups + (run,) * scenario.runs,
        digest="d",
        messages=1,
        ops={},
        unknown=(),
        cpu_s=0.1,
    )


@pytest.fixture
def simulations(monkeypatch: pytest.MonkeyPatch) -> list[Scenario]:
    """Stand-ins for simulations; returns the scenarios that were asked for."""
    asked: list[Scenario] = []

    def simulate_all(scenarios: Iterable[Scenario]) -> list[Outcome]:
        mine = list(scenarios)
        asked.extend(mine)
        return [outcome(scenario) for scenario in mine]

    monkeypatch.setattr(farm, "simulate_all", simulate_all)
    return asked


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A measured run, ``results/caps/<time>``."""
    begun = driver.start(tmp_path / "results", "caps", Experiment.model_validate(CAPS), SETUP, quick=False)
    driver.execute(begun, FakeLab(), lambda trial, state: None)
    return begun.directory


def calibrated(source: Path, content: Experiment, seeds: int = 2) -> Calibrated:
    known = Calibrations(known=(Known(workload=Workload(), calibrations=(CALIBRATION,)),))
    return Calibrated(known, simulated_lab.setup(source, content, known, seeds))


@pytest.fixture
def foretold(measured: Path, simulations: list[Scenario], capsys: pytest.CaptureFixture[str]) -> Path:
    """The same experiment simulated, ``results/simulated/caps/<time>``."""
    content = Experiment.model_validate(CAPS)
    root = measured.parents[1]
    calibrated(measured, content).start(root, "caps", content, quick=False, seed=None, only=None)
    return next((root / "simulated" / "caps").iterdir())


def ask(*argv: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in argv])
    return f"{done.exit_code} {done.output}"


def changed(**changes: object) -> Experiment:
    return Experiment.model_validate(CAPS | changes)


def test_it_has_the_same_trials_tables_and_verdicts(foretold: Path, simulations: list[Scenario]) -> None:
    results = [store.need(Result, trial) for trial in store.finished(foretold)]
    assert sorted(result.cell for result in results) == ["rate_mbit=0", "rate_mbit=0", "rate_mbit=100"]
    assert [result.status for result in results] == ["ok"] * 3
    frame = load(foretold)
    times = frame[(frame.metric == "compute_s") & ~frame.warmup]
    assert set(times.groupby("cell").value.count()) == {2 * 6, 6}  # 5 runs dealt to two seeds: three each
    assert times.value[times.cell == "rate_mbit=100"].between(4.0, 4.1).all()
    assert times.value[times.cell == "rate_mbit=0"].between(2.0, 2.1).all()
    assert frame.simulated.all()
    assert len({scenario.seed for scenario in simulations}) == 6  # the null trial has seeds of its own


def test_intervals_allow_for_what_simulations_were_missed_by(
    measured: Path, simulations: list[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Validated, "missed", 0.25)
    content = Experiment.model_validate(CAPS | {"blocks": 2})
    root = measured.parents[1]
    calibrated(measured, content).start(root, "caps", content, quick=False, seed=None, only=None)
    frame = load(next((root / "simulated" / "caps").iterdir()))
    assert set(frame.prediction_error) == {0.25}
    found = answer(frame, "compute_s", ["rate_mbit"])
    slow = found.cell("rate_mbit=100") if found else None
    assert slow is not None
    # seeds alone say 4 to 4.1 s, twice the baseline and 2 s more
    assert slow.median.low <= 4.1 / 1.25 and slow.median.high >= 4.0 * 1.25
    assert slow.ratio.low <= 2.05 / 1.25 and slow.ratio.high >= 1.95 * 1.25
    assert slow.difference.low <= 2.1 - 4.0 * 0.2 and slow.difference.high >= 1.9 + 4.0 * 0.25
    assert set(load(measured).prediction_error) == {0.0}


def test_a_trial_keeps_what_came_of_each_seed(foretold: Path) -> None:
    trial = store.finished(foretold)[0]
    seeds = [found.seed for found in store.need(Simulation, trial).outcomes]
    assert len(set(seeds)) == 2


def test_a_cell_simulated_alone_has_the_same_seeds(
    measured: Path, foretold: Path, simulations: list[Scenario]
) -> None:
    before = {scenario.seed for scenario in simulations if scenario.rates_mbit["worker-1"] < 1000}
    simulations.clear()
    content = Experiment.model_validate(CAPS)
    root = measured.parents[1] / "again"
    calibrated(measured, content).start(root, "caps", content, quick=False, seed=None, only="rate_mbit=100")
    assert {one.seed for one in simulations if one.rates_mbit["worker-1"] < 1000} == before


def test_a_run_that_was_interrupted_goes_on_with_what_it_was_calibrated_on(
    foretold: Path, simulations: list[Scenario]
) -> None:
    trial = store.finished(foretold)[1]
    before = store.need(Simulation, trial)
    (trial / Result.FILE).unlink()
    simulations.clear()
    go_on(driver.resume(foretold))
    assert store.need(Simulation, trial) == before and len(simulations) == 2


@pytest.mark.parametrize(
    ("asked", "reason"),
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
def test_what_it_cannot_say_is_unsupported_with_its_reason(
    measured: Path, asked: dict[str, object], reason: str
) -> None:
    content = changed(factors={"f": {"levels": {"as it was": {}, "other": asked}}})
    trials = plan("caps", content, calibrated(measured, content).setup)
    by_cell = {trial.cell: trial.unsupported for trial in trials if not trial.null}
    assert by_cell["f=as it was"] == ()
    assert len(by_cell["f=other"]) == 1 and by_cell["f=other"][0].startswith(reason)


def test_more_workers_than_the_lab_has_and_seats_that_are_settings_are_simulated(
    measured: Path, simulations: list[Scenario], capsys: pytest.CaptureFixture[str]
) -> None:
    levels = {"3": {}, "12": {"workers": 12, "scheduler": {"variant": "no-stealing"}}}
    content = changed(factors={"workers": {"levels": levels}})
    calibrated(measured, content).start(measured.parents[1], "w", content, quick=False, seed=None, only=None)
    more = [scenario for scenario in simulations if scenario.workers == 12]
    assert len(more) == 2 and more[0].rates_mbit["worker-12"] == 9000
    assert more[0].dask["distributed"]["scheduler"]["work-stealing"] is False


def test_measured_and_simulated_runs_are_never_one_table(measured: Path, foretold: Path) -> None:
    with pytest.raises(LabError, match="there are measured and simulated runs, which are never one table"):
        load(measured.parents[1])
    assert not load(measured).simulated.any()
    with pytest.raises(LabError, match=r"not comparable: .*simulated from None and "):
        compare.compare(measured, foretold)
    assert "new, simulated" in ask("results", "compare", measured, foretold, "--anyway")


def test_every_table_says_that_it_is_simulated(measured: Path, foretold: Path) -> None:
    lines = ask("results", "--results", measured.parents[1]).splitlines()
    assert [("simulated" in line.split()[-1], str(foretold) in line) for line in lines[1:]] == [
        (False, False),
        (True, True),
    ]
    shown = ask("results", "show", foretold)
    assert f"Simulated, not measured: with the costs of {measured}." in shown
    assert "rtt_ms: not simulated" in shown
    assert "compute_s, simulated" in shown and "transfer_mb, simulated" in shown
    assert "simulated" not in ask("results", "show", measured).lower()


def test_the_report_marks_what_was_simulated_and_takes_no_verdict_from_it(
    measured: Path, foretold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[str] = []
    monkeypatch.setattr(report.section, "mark", lambda figure, word: marked.append(word))
    page = report.write([measured, foretold], tmp_path / "page").read_text()
    assert page.count("<strong>Simulated, not measured</strong>") == 1
    assert page.count('<section id="caps">') == page.count('<section id="simulated-caps">') == 1
    assert page.count("every cell</summary>") == 5 and page.count(", simulated: every cell</summary>") == 2
    assert page.count("<figcaption>Simulated. ") == 2 == len(marked)
    drawn = {path.stem for path in (tmp_path / "page").glob("*.png")}
    both = {f"{kind}caps-{metric}" for kind in ("", "simulated-") for metric in ("compute_s", "transfer_mb")}
    assert drawn == both | {"caps-rtt_ms"}
    text = (tmp_path / "page" / "report.md").read_text()
    assert "## Caps, simulated" in text and f"--simulate --from {measured} --only CELL" in text


def test_a_simulated_run_is_not_calibrated_on(foretold: Path, tmp_path: Path) -> None:
    said = ask("whatif", foretold)
    assert said == f"1 dasklab: {foretold}: it was simulated itself; costs are taken from measured runs\n"
    path = tmp_path / "mine.yml"
    path.write_text(json.dumps(CAPS))
    assert "it was simulated itself" in ask("run", path, "--simulate", "--from", foretold)


def test_simulate_and_from_go_together(measured: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(json.dumps(CAPS))
    for words in (["--simulate"], ["--from", measured]):
        assert "--simulate and --from go together" in ask("run", path, *words)
    said = ask("run", path, "--simulate", "--from", measured)
    assert "of no valid trial that can be simulated anything was recorded inside Dask" in said


def test_a_workload_that_was_not_measured_is_told(measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "recorded", lambda folder: True)
    other = changed(workload={"name": "merge", "params": {"tasks": 7}})
    with pytest.raises(LabError, match="no measured trial tells what merge with these parameters costs"):
        Calibrations.on(measured, other, print)


def test_a_run_is_calibrated_on_all_trials_of_the_baselines_setting(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Path] = []
    monkeypatch.setattr(record, "recorded", lambda folder: True)

    def calibrate(folder: Path) -> Calibration:
        taken.append(folder)
        return CALIBRATION.model_copy(update={"trial": folder.name})

    monkeypatch.setattr("dasklab.predict.calibrate.calibrate", calibrate)
    told: list[str] = []
    found = Calibrations.on(measured, Experiment.model_validate(CAPS), told.append)
    trials = [store.need(Trial, folder) for folder in taken]
    assert sorted((trial.baseline, trial.null) for trial in trials) == [(False, True), (True, False)]
    assert [one.workload for one in found.known] == [Workload()] and len(told) == 1
    assert [one.trial for one in found.known[0].calibrations] == [folder.name for folder in taken]


def test_a_workload_that_cannot_be_simulated_is_told_and_left_out(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def calibrate(folder: Path) -> Calibration:
        raise LabError(f"{folder.name}: of no timed run anything was recorded")

    monkeypatch.setattr(record, "recorded", lambda folder: True)
    monkeypatch.setattr("dasklab.predict.calibrate.calibrate", calibrate)
    told: list[str] = []
    with pytest.raises(LabError, match="no measured trial tells what array_study"):
        Calibrations.on(measured, Experiment.model_validate(CAPS), told.append)
    assert told[1].endswith("of no timed run anything was recorded")


def test_a_trial_that_cannot_be_calibrated_on_leaves_the_others(
    measured: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Path] = []

    def calibrate(folder: Path) -> Calibration:
        asked.append(folder)
        if len(asked) == 1:
            raise LabError(f"{folder}/records.json: its records cannot be unpacked")
        return CALIBRATION

    monkeypatch.setattr(record, "recorded", lambda folder: True)
    monkeypatch.setattr("dasklab.predict.calibrate.calibrate", calibrate)
    calibrations = Calibrations.on(measured, Experiment.model_validate(CAPS), lambda text: None)
    assert len(calibrations.known[0].calibrations) == len(asked) - 1 > 0
    assert f"{asked[0]}/records.json: its records cannot be unpacked" in caplog.text


def test_seeds_are_dealt_to_the_calibrations_in_turn(measured: Path, simulations: list[Scenario]) -> None:
    content = Experiment.model_validate(CAPS)
    slower = CALIBRATION.model_copy(update={"driver_s": 2 * CALIBRATION.driver_s})
    both = Calibrations(known=(Known(workload=Workload(), calibrations=(CALIBRATION, slower)),))
    begun = Calibrated(both, simulated_lab.setup(measured, content, both, 3))
    begun.start(measured.parents[1], "caps", content, quick=False, seed=None, only=None)
    trials = [simulations[at : at + 3] for at in range(0, len(simulations), 3)]
    assert len(trials) == 3
    for trial in trials:
        assert [one.driver_s / CALIBRATION.driver_s for one in trial] == pytest.approx([1, 2, 1])


def test_threads_are_the_layouts(measured: Path, simulations: list[Scenario]) -> None:
    content = changed(factors={"layout": {"levels": {"as it was": {}, "four": {"layout": "1x4"}}}})
    calibrated(measured, content).start(measured.parents[1], "t", content, quick=False, seed=None, only=None)
    assert {one.threads for one in simulations} == {CALIBRATION.threads, 4}
