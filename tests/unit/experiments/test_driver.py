"""The plan is reproducible and blocked; a run survives failures, kills and Ctrl-C."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import FakeLab

from lab.errors import LabError
from lab.model import experiment
from lab.results import store
from lab.running import driver
from lab.running.trials import Trial, cells, estimate_s, plan


def test_every_block_has_each_cell_once_and_the_null_trial(sweep: experiment.Experiment) -> None:
    trials = plan("x", sweep)
    for block in (1, 2):
        mine = [trial for trial in trials if trial.block == block]
        assert sorted(trial.cell for trial in mine if not trial.null) == sorted(cells(sweep))
        assert [trial.factors for trial in mine if trial.null] == [{"delay_ms": 0}]
        assert sum(trial.baseline for trial in mine) == 1


def test_order_comes_from_the_seed(sweep: experiment.Experiment) -> None:
    orders = {seed: [t.trial for t in plan("x", sweep, seed)] for seed in (1, 2)}
    assert orders[1] == [t.trial for t in plan("x", sweep, 1)]
    assert orders[1] != orders[2]


def test_null_trial_asks_exactly_what_the_baseline_asks(sweep: experiment.Experiment) -> None:
    trials = plan("x", sweep)
    base, null = (next(t for t in trials if getattr(t, kind)) for kind in ("baseline", "null"))
    names = {"trial", "baseline", "null"}
    assert base.model_dump(exclude=names) == null.model_dump(exclude=names)


def test_only_keeps_what_the_cell_is_compared_with(sweep: experiment.Experiment) -> None:
    trials = plan("x", sweep, only="delay_ms=50")
    assert {trial.cell for trial in trials} == {"delay_ms=0", "delay_ms=50"}
    assert sum(trial.null for trial in trials) == 2
    with pytest.raises(
        LabError, match="no cell 'delay_ms=51'; allowed: delay_ms=0; delay_ms=50; delay_ms=200"
    ):
        plan("x", sweep, only="delay_ms=51")


def test_aliases_become_hosts_and_clear_links_vanish() -> None:
    _, content = experiment.load("rate_delay")
    trials = {trial.cell: trial for trial in plan("rate_delay", content) if not trial.null}
    base, both = trials["rate_mbit=0,delay_ms=0"], trials["rate_mbit=1000,delay_ms=10"]
    assert base.links == {} and base.baseline
    assert set(both.links) == set(both.nics) == {"scheduler", "worker-1", "worker-2", "worker-3"}
    assert both.nics["worker-2"].rate_mbit == 1000


def test_named_host_wins_over_alias() -> None:
    found = experiment.expand({"worker-2": 3, "cluster": 1, "workers": 2}, 3, "")
    assert found == {"scheduler": 1, "worker-1": 2, "worker-2": 3, "worker-3": 2}


def test_quick_replaces_levels_and_keeps_the_rest() -> None:
    full, quick = (experiment.load("delay_scheduler", form)[1] for form in (False, True))
    assert full.factors["delay_ms"].levels == [0, 5, 10, 50, 100, 150, 200]
    assert quick.factors["delay_ms"].levels == [0, 50, 100, 200]
    assert quick.factors["delay_ms"].sets == "links.scheduler.delay_ms"
    assert quick.workload.name == "array_study" and quick.workload.params["size"] == 1000


def test_another_workload_does_not_inherit_parameters() -> None:
    base = {"workload": {"name": "array_study", "params": {"size": 1}}}
    assert experiment.merge(base, {"workload": {"name": "merge"}}) == {"workload": {"name": "merge"}}


def test_estimate_counts_runs_and_probes(sweep: experiment.Experiment) -> None:
    trial = plan("x", sweep)[0]
    assert estimate_s(trial, 4) == 55 + 6 * 4 + 2 * (30 * 0.2 + 4 * 1 * 3)
    captured = trial.model_copy(update={"capture": True})
    assert estimate_s(captured, 4) == estimate_s(trial, 4) + 55 + 3 * 4


def test_remaining_time_follows_the_trials_done(tmp_path: Path, sweep: experiment.Experiment) -> None:
    begun = driver.start(tmp_path, "x", sweep, quick=False)
    assert begun.remaining_s() == 8 * estimate_s(begun.trials[0], 4)
    left = []
    driver.execute(begun, FakeLab(), lambda trial, state: left.append(begun.remaining_s()))
    assert 0 < left[2] < 8 and left[-1] == 0


def test_a_failed_trial_is_recorded_and_the_rest_goes_on(measured: Callable[..., driver.Run]) -> None:
    def fail(trial: Trial, files: dict) -> int:
        if trial.cell != "delay_ms=50":
            return 0
        files.clear()
        files["failed.json"] = {"schema": 1, "status": "failed", "reasons": ["worker-1: Start: no memory"]}
        return 2

    run = measured(FakeLab(spoil=fail))
    verdicts = store.assess(run.directory)
    failed = [verdict for verdict in verdicts.values() if verdict.status == "failed"]
    assert len(verdicts) == 8 and [verdict.cell for verdict in failed] == ["delay_ms=50"] * 2
    assert failed[0].reasons == ["worker-1: Start: no memory"]


def test_what_cannot_be_done_is_unsupported_and_not_tried_again(measured: Callable[..., driver.Run]) -> None:
    def refuse(trial: Trial, files: dict) -> int:
        if trial.links:
            files["failed.json"] = {"schema": 1, "status": "unsupported", "reasons": ["no netem"]}
        return 2 if trial.links else 0

    run = measured(FakeLab(spoil=refuse))
    assert {v.status for v in store.assess(run.directory).values()} == {"ok", "unsupported"}
    assert run.pending() == []


def test_wrong_answer_is_a_failure(measured: Callable[..., driver.Run]) -> None:
    def lie(trial: Trial, files: dict) -> int:
        files["timings.json"]["check"] |= {"got": 15.0, "ok": False}
        return 0

    verdicts = store.assess(measured(FakeLab(spoil=lie)).directory).values()
    assert {tuple(v.reasons) for v in verdicts} == {("wrong answer: 15.0, expected 16.0 +- 0.1",)}


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the driver runs after it."""


def test_killed_in_the_middle_loses_one_trial(tmp_path: Path, sweep: experiment.Experiment) -> None:
    def kill(trial: Trial, files: dict) -> int:
        if len(first.ran) == 3:
            raise Killed
        return 0

    first = FakeLab(spoil=kill)
    begun = driver.start(tmp_path, "x", sweep, quick=False)
    with pytest.raises(Killed):
        driver.execute(begun, first, lambda trial, state: None)
    (begun.directory / first.ran[-1] / "half.json").write_text("{")
    second = FakeLab()
    driver.execute(driver.resume(begun.directory), second, lambda trial, state: None)
    assert second.ran == first.ran[2:] + [t.trial for t in begun.trials[3:]]
    assert not (begun.directory / first.ran[-1] / "half.json").exists()
    assert begun.pending() == []


def test_ctrl_c_cleans_the_lab(tmp_path: Path, sweep: experiment.Experiment) -> None:
    def interrupt(trial: Trial, files: dict) -> int:
        raise KeyboardInterrupt

    lab = FakeLab(spoil=interrupt)
    begun = driver.start(tmp_path, "x", sweep, quick=False)
    with pytest.raises(KeyboardInterrupt):
        driver.execute(begun, lab, lambda trial, state: None)
    assert lab.cleaned == 1 and len(begun.pending()) == 8


def test_resume_refuses_another_plan(tmp_path: Path, sweep: experiment.Experiment) -> None:
    begun = driver.start(tmp_path, "x", sweep, quick=False)
    path = begun.directory / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seed": 5}))
    with pytest.raises(LabError, match="plans other trials"):
        driver.resume(begun.directory)
