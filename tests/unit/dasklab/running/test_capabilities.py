"""Which experiments a lab supports."""

from __future__ import annotations

from dasklab.running.capabilities import supported_experiments

from tests.unit.dasklab.conftest import SETUP


def test_partial_support_and_need_of_netem_are_listed() -> None:
    machines, containers = supported_experiments(SETUP, "vm"), supported_experiments(SETUP, "container")
    machines_alone = supported_experiments(SETUP.model_copy(update={"kinds": ("vm",)}), "vm")
    assert "nic_matrix: 5 of 8 cells; not nic=veth, nic=veth 10G, nic=veth 1G" in machines_alone
    assert any(t.startswith("slow_links: 4 of 7 cells; not ") and "worker E1000" in t for t in containers)
    assert not any(t.startswith("slow_links") for t in machines)
    assert "delay_worker" in machines[-1] and "workers" not in machines[-1]


def test_lab_with_both_images_supports_all_nics() -> None:
    lines = supported_experiments(SETUP, "vm") + supported_experiments(SETUP, "container")
    assert not any(line.startswith("nic_matrix") for line in lines)


def test_experiment_with_too_many_workers_is_listed() -> None:
    few = SETUP.model_copy(update={"hosts": SETUP.hosts[:3]})
    assert "workers: needs more workers than the inventory has" in supported_experiments(few, "vm")
