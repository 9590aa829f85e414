"""The node and the clocks: busy nodes make trials invalid, and worth repeating."""

from __future__ import annotations

from dasklab.model.experiments.experiment import Tolerances
from dasklab.model.files import Hosts
from dasklab.results.validity import node

from tests.unit.dasklab.conftest import Json

CPU = {"user_s": 70.0, "nice_s": 0.0, "system_s": 20.0, "idle_s": 10.0, "steal_s": 0.0}
FACTS: Json = {
    "kernel": "",
    "os": "",
    "virtualization": "",
    "cpus": 1,
    "memory_mb": 1,
    "versions": {},
    "congestion_control": "",
    "clock_ahead_at_most_s": 0,
    "cpu": {},
    "tcp": {},
    "softnet_dropped": 0,
    "lab_statistics": {},
}


def hosts(seconds: dict[str, float] | None = None, **hypervisor: object) -> Hosts:
    facts = {name: FACTS | {"seconds": value} for name, value in (seconds or {}).items()}
    node = {"name": "pve", "accel": "lxc", "cpu": CPU} | hypervisor
    return Hosts.model_validate({"hosts": facts, "hypervisor": node})


def test_clock_of_another_speed_is_reported() -> None:
    """A guest that restarted on a busy host took its counter for 5.4 times as fast as it was."""
    seconds = {"client": 119.0, "scheduler": 119.1, "worker-1": 644.2, "worker-2": 118.5}
    assert list(node.clocks(hosts(seconds))) == ["worker-1: its clock ran at x 5.41 the speed of the others"]
    assert list(node.clocks(hosts())) == []


def test_foreign_cpu_makes_a_trial_invalid_and_worth_repeating() -> None:
    reasons = list(node.foreign(hosts(lab_cpu_s=47), Tolerances()))
    assert reasons == [
        "the node: processes outside the lab used 43 % of its CPU during the repeats, allowed 15 %"
    ]
    assert node.is_disturbed(reasons)
    assert not node.is_disturbed([*reasons, "requested a cap of 100 Mbit/s, measured 200 Mbit/s"])
    assert not node.is_disturbed([])


def test_foreign_cpu_within_the_tolerance_is_allowed() -> None:
    assert list(node.foreign(hosts(lab_cpu_s=85), Tolerances())) == []
    assert list(node.foreign(hosts(lab_cpu_s=47), Tolerances(foreign_pct=100))) == []


def test_unknown_foreign_cpu_is_not_judged() -> None:
    assert list(node.foreign(hosts(), Tolerances())) == []


def test_pressure_is_judged_if_a_tolerance_is_set() -> None:
    waiting = hosts(pressure_pct={"memory": 30.0, "disk": 1.0})
    assert list(node.foreign(waiting, Tolerances())) == []
    assert list(node.foreign(waiting, Tolerances(pressure_pct=20))) == [
        "the node: processes waited for memory in 30 % of the time, allowed 20 %"
    ]


def test_steal_time_is_judged_if_a_tolerance_is_set() -> None:
    stealing = hosts(cpu=CPU | {"steal_s": 25.0})
    assert list(node.steal(stealing, Tolerances())) == []
    assert list(node.steal(stealing, Tolerances(steal_pct=5))) == [
        "the node: 20 % steal time during the repeats, allowed 5 %"
    ]
