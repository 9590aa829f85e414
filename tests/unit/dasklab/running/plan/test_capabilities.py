"""Which experiments a lab supports, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines.local_host import HostCheck
from dasklab.model.experiments import experiment
from dasklab.model.experiments.trial import Setup
from dasklab.model.settings.impairments import KERNEL_FEATURES
from dasklab.model.settings.link import Link
from dasklab.running.plan.capabilities import require_supported, supported_experiments, with_kernel
from dasklab.running.plan.trials import plan

from tests.unit.dasklab.conftest import SETUP

CONTAINERS = SETUP.for_kind("container")


def lacking(*names: str) -> Setup:
    checked = HostCheck(findings=(), packages=(), usable=True, kernel_lacks=names)
    return with_kernel(CONTAINERS, checked)


def test_partial_support_and_need_of_netem_are_listed() -> None:
    machines, containers = supported_experiments(SETUP, "vm"), supported_experiments(SETUP, "container")
    machines_alone = supported_experiments(SETUP.model_copy(update={"kinds": ("vm",)}), "vm")
    assert "nic_matrix: 5 of 8 cells; not nic=veth, nic=veth 10G, nic=veth 1G" in machines_alone
    assert any(t.startswith("slow_links: 4 of 7 cells; not ") and "worker E1000" in t for t in containers)
    assert not any(t.startswith("slow_links") for t in machines)
    assert "delay_worker" in containers[-1] and "workers" not in containers[-1]
    assert not any("netem" in line for line in machines), "machines have their own kernel"


def test_kernel_without_netem_is_one_line() -> None:
    lines = supported_experiments(lacking("netem"), "container")
    [line] = [line for line in lines if "netem" in line]
    assert line.startswith("not delay_scheduler, delay_worker, ")
    assert line.endswith(": this kernel has no netem; use virtual machines")
    assert not any(line.startswith("need netem") for line in lines)


def test_lab_with_both_images_supports_all_nics() -> None:
    lines = supported_experiments(SETUP, "vm") + supported_experiments(SETUP, "container")
    assert not any(line.startswith("nic_matrix") for line in lines)


def test_experiment_with_too_many_workers_is_listed() -> None:
    few = SETUP.model_copy(update={"hosts": SETUP.hosts[:3]})
    assert "workers: needs more workers than the inventory has" in supported_experiments(few, "vm")


@pytest.mark.parametrize(
    ("link", "lacks", "supported"),
    [
        ({"rate_mbit": 10}, ("netem", "police"), True),
        ({"rate_mbit": 10, "policer": True}, ("netem", "police"), True),
        ({"jitter_ms": 1, "delay_ms": 1}, ("police",), True),
        ({"loss_pct": 1}, ("netem",), False),
        ({"delay_ms": 5, "rate_mbit": 10, "policer": True}, ("police",), False),
        ({}, ("netem", "police"), True),
    ],
)
def test_links_need_what_their_queues_need(
    link: dict[str, Any], lacks: tuple[str, ...], supported: bool
) -> None:
    assert set(lacks) <= set(KERNEL_FEATURES)
    name, content = experiment.load("delay_worker")
    settings = content.model_copy(update={"factors": {}, "links": {"worker-1": Link.model_validate(link)}})
    trials = plan(name, settings, lacking(*lacks))
    assert {not trial.unsupported for trial in trials} == {supported}


def test_cells_are_grouped_by_reason() -> None:
    trials = plan(*experiment.load("slow_links"), lacking("netem"))
    with pytest.raises(LabError) as refused:
        require_supported("slow_links", trials)
    assert refused.value.message.count("cannot run here") == 3, refused.value.message
    assert refused.value.hint == "to run the other 4 of 7 cells: --skip-unsupported"
    require_supported("slow_links", trials, skip_unsupported=True)


def test_many_cells_are_counted() -> None:
    name, content = experiment.load("reordering")
    with pytest.raises(LabError, match="no netem") as refused:
        require_supported(name, plan(name, content, lacking("netem")), skip_unsupported=True)
    assert refused.value.hint is None
    assert len(refused.value.message) < 500
