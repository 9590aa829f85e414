"""Plans are reproducible and in blocks; runs survive failures, kills and Ctrl-C."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from dasklab.errors import LabError
from dasklab.model.experiments import cells, experiment
from dasklab.model.experiments.trial import RequestedTrial, Setup
from dasklab.model.settings.hosts import expand_aliases
from dasklab.model.settings.link import Link
from dasklab.model.settings.nic import NicSettings
from dasklab.results.validity import verdict
from dasklab.running.driver import driver
from dasklab.running.plan.trials import estimate_s, plan

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json


def test_each_block_has_every_cell_once_and_the_null_trial(sweep: experiment.Experiment) -> None:
    trials = plan("x", sweep, SETUP)
    for block in (1, 2):
        mine = [trial for trial in trials if trial.block == block]
        assert sorted(trial.cell for trial in mine if not trial.null) == sorted(cells.cell_names(sweep))
        assert [trial.factors for trial in mine if trial.null] == [{"delay_ms": 0}]
        assert sum(trial.baseline for trial in mine) == 1


def test_order_comes_from_the_seed(sweep: experiment.Experiment) -> None:
    orders = {seed: [t.trial for t in plan("x", sweep, SETUP, seed=seed)] for seed in (1, 2)}
    assert orders[1] == [t.trial for t in plan("x", sweep, SETUP, seed=1)]
    assert orders[1] != orders[2]


def test_guests_change_their_kind_once_in_a_block() -> None:
    """Each change creates and configures four machines again: a minute under emulation."""
    trials = plan(*experiment.load("nic_matrix", True), SETUP)
    for block in (1, 2, 3):
        kinds = [trial.guests["worker-1"] for trial in trials if trial.block == block]
        assert len(kinds) == 10
        assert sum(kind != after for kind, after in pairwise(kinds)) == 1
    orders = {tuple(trial.cell for trial in trials if trial.block == block) for block in (1, 2, 3)}
    assert len(orders) == 3


def test_null_trial_equals_the_baseline(sweep: experiment.Experiment) -> None:
    trials = plan("x", sweep, SETUP)
    base, null = (next(t for t in trials if getattr(t, kind)) for kind in ("baseline", "null"))
    names = {"trial", "baseline", "null"}
    assert base.model_dump(exclude=names) == null.model_dump(exclude=names)


def test_only_keeps_baseline_and_null_trial(sweep: experiment.Experiment) -> None:
    trials = plan("x", sweep, SETUP, only="delay_ms=50")
    assert {trial.cell for trial in trials} == {"delay_ms=0", "delay_ms=50"}
    assert sum(trial.null for trial in trials) == 2
    with pytest.raises(
        LabError, match="no cell 'delay_ms=51'; allowed: delay_ms=0; delay_ms=50; delay_ms=200"
    ):
        plan("x", sweep, SETUP, only="delay_ms=51")


def test_aliases_are_expanded_and_clear_links_dropped() -> None:
    _, content = experiment.load("rate_delay")
    trials = {trial.cell: trial for trial in plan("rate_delay", content, SETUP) if not trial.null}
    base, both = trials["rate_mbit=0,delay_ms=0"], trials["rate_mbit=1000,delay_ms=10"]
    assert base.links == {} and base.baseline
    assert set(both.links) == set(both.tested) == {"scheduler", "worker-1", "worker-2", "worker-3"}
    assert both.nics["worker-2"].rate_mbit == 1000


def test_host_overrides_alias() -> None:
    aliases = {"worker-2": {"delay_ms": 3}, "workers": {"delay_ms": 2}}
    aliases["cluster"] = {"delay_ms": 1, "loss_pct": 5}
    links = {name: Link.model_validate(link) for name, link in aliases.items()}
    expanded = expand_aliases(links, 3, "")
    assert {host: link.delay_ms for host, link in expanded.items()} == {
        "scheduler": 1, "worker-1": 2, "worker-2": 3, "worker-3": 2
    }  # fmt: skip
    assert {link.loss_pct for link in expanded.values()} == {5}  # merged from the alias


def test_quick_replaces_levels_and_keeps_the_rest() -> None:
    full, quick = (experiment.load("delay_scheduler", form)[1] for form in (False, True))
    assert full.factors["delay_ms"].levels == [0, 5, 10, 50, 100, 150, 200]
    assert quick.factors["delay_ms"].levels == [0, 50, 100, 200]
    assert quick.factors["delay_ms"].sets == "links.scheduler.delay_ms"
    assert quick.workload.name == "array_study" and quick.workload.params["size"] == 1000


def test_other_workload_does_not_inherit_parameters() -> None:
    base = {"workload": {"name": "array_study", "params": {"size": 1}}}
    assert experiment.merge(base, {"workload": {"name": "merge"}}) == {"workload": {"name": "merge"}}


def test_estimate_counts_runs_and_probes(sweep: experiment.Experiment) -> None:
    trial = plan("x", sweep, SETUP)[0]
    assert estimate_s(trial, 4) == 55 + 6 * 4 + 2 * (30 * 0.2 + 4 * 1 * 3)
    captured = trial.model_copy(update={"capture": True, "captured_repeats": 3})
    assert estimate_s(captured, 4) == estimate_s(trial, 4) + 55 + 3 * 4
    containers = plan("x", sweep, SETUP.for_kind("container"))[0]
    assert estimate_s(containers, 4) == estimate_s(trial, 4) - 42


def test_remaining_time_follows_from_finished_trials(tmp_path: Path, sweep: experiment.Experiment) -> None:
    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    assert run.remaining_s() == 8 * estimate_s(run.trials[0], 4)
    left = []
    driver.execute(run, FakeLab(), lambda trial, state: left.append(run.remaining_s()))
    assert 0 < left[2] < 8 and left[-1] == 0


def failed_json(status: str, reason: str) -> Json:
    return {"schema": 4, "status": status, "host": "worker-1", "task": "Start", "reasons": [reason]}


def test_failed_trial_is_recorded_and_the_others_run(measured: Callable[..., driver.ActiveRun]) -> None:
    def fail(trial: Json, files: Json) -> int:
        if trial["cell"] != "delay_ms=50":
            return 0
        files.clear()
        files["failed.json"] = failed_json("failed", "worker-1: Start: no memory")
        return 2

    run = measured(FakeLab(spoil=fail))
    verdicts = verdict.assess(run.opened_again())
    failures = [result for result in verdicts.values() if result.status == "failed"]
    assert len(verdicts) == 8 and [result.cell for result in failures] == ["delay_ms=50"] * 2
    assert failures[0].reasons == ("worker-1: Start: no memory",)


def test_run_stops_after_a_failed_trial_if_the_endpoint_is_dead(
    tmp_path: Path, sweep: experiment.Experiment
) -> None:
    class DeadLab(FakeLab):
        def require_endpoint(self) -> None:
            raise LabError("the local endpoint of lab 'dasklab' is not running", "to start it: dasklab up")

    def fail_third(trial: Json, files: Json) -> int:
        if len(lab.ran) < 3:
            return 0
        files.clear()
        return 4

    lab = DeadLab(spoil=fail_third)
    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    with pytest.raises(LabError) as raised:
        driver.execute(run, lab, lambda trial, state: None)
    assert raised.value.message == (
        f"the run stopped after trial {lab.ran[2]}: the local endpoint of lab 'dasklab' is not running"
    )
    assert len(lab.ran) == 3 < len(run.trials)
    assert [trial.trial for trial in run.pending()] == [trial.trial for trial in run.trials[2:]]


def test_unsupported_trial_is_not_repeated(
    measured: Callable[..., driver.ActiveRun],
) -> None:
    def refuse(trial: Json, files: Json) -> int:
        if trial["links"]:
            files["failed.json"] = failed_json("unsupported", "no netem")
        return 2 if trial["links"] else 0

    run = measured(FakeLab(spoil=refuse))
    assert {v.status for v in verdict.assess(run.opened_again()).values()} == {"ok", "unsupported"}
    assert run.pending() == []


def test_trial_with_steal_time_is_measured_again(tmp_path: Path, sweep: experiment.Experiment) -> None:
    def taken(trial: Json, files: Json) -> int:
        busy = trial["trial"] == run.trials[1].trial
        files["hosts.json"]["hypervisor"]["cpu"] = {"idle_s": 60.0, "steal_s": 40.0 if busy else 4.0}
        return 0

    allowed = sweep.tolerances.model_copy(update={"steal_pct": 10.0})
    run = driver.start(tmp_path, "x", sweep.model_copy(update={"tolerances": allowed}), SETUP, quick=False)
    driver.execute(run, FakeLab(spoil=taken), lambda trial, state: None)
    invalid = {name: result for name, result in verdict.assess(run.opened_again()).items() if result.reasons}
    text = "the node: 40 % steal time during the repeats, allowed 10 %"
    assert {name: result.reasons for name, result in invalid.items()} == {run.trials[1].trial: (text,)}
    assert run.pending() == [] == driver.resume(run.opened_again(), SETUP).pending()
    second = FakeLab()
    driver.execute(driver.resume(run.opened_again(), SETUP, again=True), second, lambda trial, state: None)
    assert second.ran == [run.trials[1].trial]
    assert {result.status for result in verdict.assess(run.opened_again()).values()} == {"ok"}


def test_wrong_answer_is_a_failure(measured: Callable[..., driver.ActiveRun]) -> None:
    def lie(trial: Json, files: Json) -> int:
        files["timings.json"]["check"] |= {"answer": 15.0, "ok": False}
        return 0

    verdicts = verdict.assess(measured(FakeLab(spoil=lie)).opened_again()).values()
    assert {tuple(v.reasons) for v in verdicts} == {("wrong answer: 15.0, expected 16.0 +- 0.1",)}


class Killed(BaseException):
    """Stands for SIGKILL: the driver handles nothing after it."""


def test_kill_loses_one_trial(tmp_path: Path, sweep: experiment.Experiment) -> None:
    def kill(trial: Json, files: Json) -> int:
        if len(first.ran) == 3:
            raise Killed
        return 0

    first = FakeLab(spoil=kill)
    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    with pytest.raises(Killed):
        driver.execute(run, first, lambda trial, state: None)
    (run.stored.folder / first.ran[-1] / "half.json").write_text("{")
    second = FakeLab()
    driver.execute(driver.resume(run.opened_again(), SETUP), second, lambda trial, state: None)
    assert second.ran == first.ran[2:] + [t.trial for t in run.trials[3:]]
    assert not (run.stored.folder / first.ran[-1] / "half.json").exists()
    assert run.pending() == []


def test_ctrl_c_resets_the_lab(tmp_path: Path, sweep: experiment.Experiment) -> None:
    def interrupt(trial: Json, files: Json) -> int:
        raise KeyboardInterrupt

    lab = FakeLab(spoil=interrupt)
    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    with pytest.raises(KeyboardInterrupt):
        driver.execute(run, lab, lambda trial, state: None)
    assert lab.resets == 1 and len(run.pending()) == 8


def test_second_ctrl_c_while_the_lab_is_reset_is_reported(
    tmp_path: Path, sweep: experiment.Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    lab = FakeLab(spoil=interrupt)
    monkeypatch.setattr(lab, "reset", interrupt)
    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    with pytest.raises(driver.ResetStoppedError):
        driver.execute(run, lab, lambda trial, state: None)


def test_resume_refuses_another_plan(tmp_path: Path, sweep: experiment.Experiment) -> None:
    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    path = run.stored.folder / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seed": 5}))
    with pytest.raises(LabError, match="plans other trials"):
        driver.resume(run.opened_again(), SETUP)


def test_override_keeps_the_inventorys_other_settings() -> None:
    """A rate cap on a lab with E1000 NICs leaves the NIC model."""
    document = {"title": "T", "question": "Q?", "metrics": {"compute_s": None}}
    rate = {"rate_mbit": {"sets": "nics.cluster.rate_mbit", "levels": [0, 100]}}
    content = experiment.Experiment.model_validate(document | {"factors": rate})
    cards = {host: NicSettings(model="e1000", rate_mbit=500) for host in SETUP.hosts}
    lab = SETUP.model_copy(update={"nics": cards})
    capped = next(trial for trial in plan("x", content, lab) if trial.cell == "rate_mbit=100")
    assert capped.nics["worker-1"] == NicSettings(model="e1000", rate_mbit=100)
    assert capped.nics["client"] == NicSettings(model="e1000", rate_mbit=500)
    assert capped.tested == ("scheduler", "worker-1", "worker-2", "worker-3")


def kinds_of(lab: Setup, *, model: str | None = None) -> list[RequestedTrial]:
    """Plan an experiment with capped workers, of the inventory's kind and as containers."""
    nic = {"rate_mbit": 100} | ({"model": model} if model else {})
    levels = {"as they are": {}, "containers": {"guests": {"workers": {"kind": "container"}}}}
    document = {"title": "T", "question": "Q?", "metrics": {"compute_s": None}, "nics": {"workers": nic}}
    content = experiment.Experiment.model_validate(document | {"factors": {"kind": {"levels": levels}}})
    return plan("x", content, lab)


def test_other_kind_gets_its_nic_model_and_keeps_the_rate_cap() -> None:
    trials = {trial.cell: trial for trial in kinds_of(SETUP)}
    trial = trials["kind=containers"]
    assert trial.guests == dict.fromkeys(SETUP.hosts, "vm") | dict.fromkeys(SETUP.hosts[2:], "container")
    assert trial.nics["worker-1"] == NicSettings(model="veth", rate_mbit=100)
    assert trial.nics["scheduler"] == SETUP.nics["scheduler"]
    assert trial.tested == ("worker-1", "worker-2", "worker-3") and trial.unsupported == ()
    assert trials["kind=as they are"].guests == SETUP.guests
    emulated = {trial.cell: trial.unsupported for trial in kinds_of(SETUP, model="e1000")}
    assert emulated["kind=as they are"] == ()
    assert emulated["kind=containers"][0] == "NIC e1000 of worker-1: it is a container, which has veth"


def test_kind_without_an_image_is_unsupported() -> None:
    lab = SETUP.model_copy(update={"kinds": ("vm",)})
    trials = {trial.cell: trial.unsupported for trial in kinds_of(lab)}
    assert trials["kind=containers"] == ("guests of kind container: the inventory names no image for them",)


def test_unsupported_trials_are_not_started(tmp_path: Path) -> None:
    name, content = experiment.load("bridge_rate", quick=True)
    made_by_hand = SETUP.model_copy(update={"guests": {}, "nics": {}, "bridge": False})
    lab = FakeLab()
    run = driver.start(tmp_path, name, content, made_by_hand, quick=True)
    driver.execute(run, lab, lambda trial, state: None)
    results = verdict.assess(run.opened_again())
    assert {v.status for v in results.values()} == {"unsupported"} and lab.ran == []
    assert "no hypervisor makes these machines" in results[run.trials[0].trial].reasons[0]


def test_run_is_not_resumed_on_another_lab(tmp_path: Path, sweep: experiment.Experiment) -> None:
    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    other = SETUP.model_copy(update={"nics": {host: NicSettings(model="e1000") for host in SETUP.hosts}})
    with pytest.raises(LabError, match="the inventory has changed since this run started"):
        driver.resume(run.opened_again(), other)


def test_too_few_workers_are_refused(sweep: experiment.Experiment) -> None:
    more = experiment.Experiment.model_validate(sweep.model_dump(exclude_unset=True) | {"workers": 5})
    with pytest.raises(LabError, match="needs 5 workers, but the inventory has no worker-4, worker-5"):
        plan("x", more, SETUP)


@pytest.mark.parametrize(("name", "resets"), [("slow_links", 1), ("delay_worker", 0)])
def test_lab_is_reset_after_a_run_that_changed_nics(tmp_path: Path, name: str, resets: int) -> None:
    """Without a reset, four machines of a real lab kept the last trial's rate cap."""
    lab = FakeLab()
    run = driver.start(tmp_path, *experiment.load(name, quick=True), SETUP, quick=True)
    driver.execute(run, lab, lambda trial, state: None)
    assert lab.resets == resets


def test_baseline_is_the_first_supported_cell() -> None:
    name, content = experiment.load("nic_matrix")
    trials = plan(name, content, SETUP.for_kind("container").model_copy(update={"kinds": ("container",)}))
    for block in {trial.block for trial in trials}:
        ends = {(t.cell, t.baseline) for t in trials if t.block == block and (t.baseline or t.null)}
        assert ends == {("nic=veth", True), ("nic=veth", False)}
    assert [trial.unsupported for trial in trials if trial.cell == "nic=veth"] == [()] * 8


def test_trials_that_are_not_supported_take_no_time(tmp_path: Path, sweep: experiment.Experiment) -> None:
    setup = SETUP.for_kind("container").model_copy(update={"kernel_lacks": {"container": ("netem",)}})
    run = driver.start(tmp_path, "x", sweep, setup, quick=False)
    supported = [trial for trial in run.trials if not trial.unsupported]
    assert len(supported) == len(run.trials) / 2, "baseline and null trial"
    assert run.remaining_s() == sum(estimate_s(trial, sweep.repeat_s) for trial in supported)
    waits: list[str] = []
    driver.execute(run, FakeLab(), lambda trial, state: None, lambda: waits.append("for a quiet node"))
    assert len(waits) == len(supported)


def test_run_is_resumed_when_the_kernel_is_known_by_now(tmp_path: Path, sweep: experiment.Experiment) -> None:
    setup = SETUP.for_kind("container")
    run = driver.start(tmp_path, "x", sweep, setup, quick=False)
    known = setup.model_copy(update={"kernel_lacks": {"container": ("netem",)}})
    assert driver.resume(run.opened_again(), known).trials == run.trials
