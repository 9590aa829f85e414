"""A trial becomes orders: who does what in which phase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from dasklab.model.experiments import experiment
from dasklab.model.experiments.order import LabHost, Phase, TrialOrders
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.running.plan.trials import plan
from dasklab.running.playbooks.orders import TIMED_PHASES, orders, venv_folder

from tests.unit.dasklab.conftest import HOSTS, SETUP

LAB = {
    name: LabHost(
        role=name.partition("-")[0],
        address=f"10.77.1.{number}",
        scheduler_address="10.77.1.12",
    )
    for number, name in enumerate(HOSTS, start=11)
}


def trial_of(tmp_path: Path, **settings: Any) -> RequestedTrial:
    """The baseline of an experiment with these settings."""
    document = {
        "title": "t",
        "question": "q",
        "metrics": {"compute_s": None},
        "factors": {"bridge": {"sets": "bridge", "levels": ["learning"]}},
        "workload": {"name": "array_study", "params": {"size": 1000}},
        "repeats": 3,
        "blocks": 1,
        **settings,
    }
    path = tmp_path / "own.yml"
    path.write_text(yaml.safe_dump(document))
    return next(trial for trial in plan("own", experiment.load(str(path))[1], SETUP) if trial.baseline)


def phase(result: TrialOrders, name: str) -> Phase:
    return next(phase for phase in result.phases if phase.name == name)


def steps(result: TrialOrders, name: str, host: str) -> dict[str, dict[str, Any]]:
    order = phase(result, name).orders.get(host)
    return {step.do: step.arguments for step in order.steps} if order else {}


def test_phases_are_the_method_of_the_lab(tmp_path: Path) -> None:
    result = orders(trial_of(tmp_path), LAB)
    assert [phase.name for phase in result.phases] == list(TIMED_PHASES)
    assert [phase.name for phase in result.phases if phase.look] == ["run", "stop"]
    assert [(phase.name, phase.bridge) for phase in result.phases if phase.bridge] == [
        ("prepare", "learning")
    ]
    assert {order.first for order in result.phases[0].orders.values()} == {True}
    assert not any(order.first for phase in result.phases[1:] for order in phase.orders.values())


def test_link_gets_its_impairment_and_every_other_link_is_cleared(tmp_path: Path) -> None:
    result = orders(trial_of(tmp_path, links={"worker-1": {"delay_ms": 5}}), LAB)
    requests = {host: steps(result, "prepare", host)["link.apply"] for host in HOSTS}
    assert requests["worker-1"]["links"][0]["delay_ms"] == 5
    assert [host for host in HOSTS if requests[host]["links"]] == ["worker-1"]


def test_every_link_of_the_cluster_is_measured_once_in_each_direction(tmp_path: Path) -> None:
    result = orders(trial_of(tmp_path), LAB)
    targets = {host: steps(result, "probe-rtt-before", host)["probe.rtt"]["to"] for host in HOSTS}
    assert targets == {
        "client": [],
        "scheduler": ["worker-1"],
        "worker-1": ["worker-2"],
        "worker-2": ["worker-3"],
        "worker-3": ["scheduler"],
    }
    assert set(phase(result, "probe-throughput-before").orders) == set(HOSTS) - {"client"}
    assert phase(result, "probe-throughput-before").at_once == 1


def test_client_is_probed_when_its_link_is_tested_and_peers_as_well(tmp_path: Path) -> None:
    links = {"client": {"delay_ms": 5, "peer": "worker-2"}}
    result = orders(trial_of(tmp_path, links=links), LAB)
    assert steps(result, "probe-rtt-before", "client")["probe.rtt"]["to"] == ["scheduler", "worker-2"]
    assert steps(result, "probe-rtt-before", "worker-3")["probe.rtt"]["to"] == ["client"]


def test_only_the_workers_that_take_part_run_a_service(tmp_path: Path) -> None:
    result = orders(trial_of(tmp_path, workers=2), LAB)
    services = {host: steps(result, "start", host)["cluster.start"]["service"] for host in HOSTS}
    assert services == {
        "client": "",
        "scheduler": "dask-scheduler",
        "worker-1": "dask-worker",
        "worker-2": "dask-worker",
        "worker-3": "",
    }


def test_workload_waits_for_all_workers_of_the_layout(tmp_path: Path) -> None:
    result = orders(trial_of(tmp_path, layout="2x1", workers=2), LAB)
    options = steps(result, "run", "client")["workload.run"]["options"]
    assert options[:6] == ["--repeats", "3", "--warmups", "1", "--workers", "4"]
    variables = steps(result, "start", "worker-1")["cluster.start"]["variables"]
    assert (variables["DASKLAB_PROCESSES"], variables["DASKLAB_THREADS"]) == ("2", "1")


def test_scheduler_variant_has_a_preload(tmp_path: Path) -> None:
    result = orders(trial_of(tmp_path, scheduler={"variant": "random"}), LAB)
    settings = steps(result, "start", "scheduler")["cluster.start"]["settings"]
    preload = settings["distributed"]["scheduler"]["preload"]
    assert [Path(name).name for name in preload] == ["dasklab_random.py"]
    assert "distributed" not in steps(result, "start", "worker-1")["cluster.start"]["settings"]


def test_scheduler_command_of_the_inventory_is_used_unless_the_trial_has_one(tmp_path: Path) -> None:
    own = {name: host.model_copy(update={"scheduler_command": "/opt/own"}) for name, host in LAB.items()}
    for scheduler, command in (({}, "/opt/own"), ({"command": "/opt/mine"}, "/opt/mine")):
        result = orders(trial_of(tmp_path, scheduler=scheduler), own)
        variables = steps(result, "start", "scheduler")["cluster.start"]["variables"]
        assert variables["DASKLAB_SCHEDULER"] == command


def test_timed_and_captured_runs_are_recorded_where_the_inventory_allows_it(tmp_path: Path) -> None:
    result = orders(trial_of(tmp_path, capture=True, performance_report=True), LAB)
    assert steps(result, "run", "client")["workload.run"]["record"] == "record"
    assert steps(result, "capture-run", "client")["workload.run"]["record"] == "capture-record"
    assert "record" not in steps(result, "report-run", "client")["workload.report"]
    off = {name: host.model_copy(update={"records": False}) for name, host in LAB.items()}
    assert "record" not in steps(orders(trial_of(tmp_path), off), "run", "client")["workload.run"]


def test_fault_is_armed_before_the_run_and_ended_after_it(tmp_path: Path) -> None:
    fault = {"host": "worker-2", "does": "restart", "at_s": 1, "for_s": 2}
    trial = trial_of(tmp_path, faults=[fault])
    result = orders(trial, LAB)
    armed = steps(result, "start", "worker-2")["fault.arm"]
    assert armed == {
        "service": "dask-worker.service",
        "ttl_s": trial.ttl_s,
        "does": "restart",
        "at_s": 1,
        "for_s": 2,
    }
    assert "fault.end" in steps(result, "stop", "worker-2")
    assert "fault.end" not in steps(result, "stop", "worker-1")
    assert steps(result, "run", "client")["workload.run"]["signal_faults"]
    assert steps(result, "start", "worker-2")["cluster.start"]["ttl_s"] > trial.ttl_s


def test_capture_starts_before_its_cluster_on_the_flooding_bridge(tmp_path: Path) -> None:
    result = orders(trial_of(tmp_path, capture=True), LAB)
    names = [phase.name for phase in result.phases]
    assert names[len(TIMED_PHASES) :] == [
        "capture-start",
        "capture-cluster",
        "capture-run",
        "capture-cluster-stop",
        "capture-stop",
    ]
    assert phase(result, "capture-start").bridge == "flooding"
    assert steps(result, "capture-run", "client")["workload.run"]["output"] == "capture-timings.json"


def test_report_and_profile_are_runs_of_their_own(tmp_path: Path) -> None:
    result = orders(trial_of(tmp_path, performance_report=True, py_spy=True), LAB)
    assert "workload.report" in steps(result, "report-run", "client")
    assert "profile.start" in steps(result, "profile-start", "worker-1")
    assert "profile.start" not in steps(result, "profile-start", "client")
    assert list(steps(result, "profile-stop", "worker-1")) == ["profile.stop", "cluster.stop"]


def test_spark_takes_the_place_of_dask(tmp_path: Path) -> None:
    result = orders(trial_of(tmp_path, engine="spark", workload={"name": "groupby"}, workers=2), LAB)
    assert result.spark
    services = {host: steps(result, "start", host)["spark.start"]["service"] for host in HOSTS}
    assert services == {
        "client": "",
        "scheduler": "spark-master",
        "worker-1": "spark-worker",
        "worker-2": "spark-worker",
        "worker-3": "",
    }
    assert steps(result, "run", "client")["workload.run"]["scheduler"] == "spark://10.77.1.12:7077"


def test_other_packages_have_an_environment_of_their_own() -> None:
    assert venv_folder("/opt/dask", {}) == "/opt/dask"
    folders = {venv_folder("/opt/dask", {"dask": version}) for version in ("2024.8.0", "2025.4.1")}
    assert len(folders) == 2
    assert all(folder.startswith("/opt/dask-") for folder in folders)


@pytest.mark.parametrize("name", ["baseline", "faults", "spark", "layouts", "versions", "slow_links"])
def test_every_trial_of_an_experiment_has_orders(name: str) -> None:
    _, content = experiment.load(name, quick=True)
    for trial in plan(name, content, SETUP):
        result = orders(trial, LAB)
        assert {host for phase in result.phases for host in phase.orders} <= set(HOSTS)
