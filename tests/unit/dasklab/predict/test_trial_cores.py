"""What calibration derives from the CPU time of a trial's machines."""

from __future__ import annotations

import pytest
from dasklab.model.files import Configured, ConfiguredHost, HostFacts, Hosts
from dasklab.predict import trial_cores


def hosts(kind: str, worked_s: float, node: dict[str, float] | None) -> Hosts:
    """Two machines that counted ``worked_s`` of CPU time each within ten seconds."""
    cpu = {"user_s": worked_s - 0.5, "softirq_s": 0.5, "idle_s": 10 - worked_s, "steal_s": 3.0}
    host = HostFacts.model_construct(virtualization=kind, seconds=10.0, cpu=cpu)
    hypervisor = Hosts.model_validate({"hypervisor": {"name": "a", "accel": kind, "cpu": node}})
    return hypervisor.model_copy(update={"hosts": {"worker-1": host, "worker-2": host}})


NODE = {"user_s": 11.0, "system_s": 1.0, "idle_s": 7.9, "steal_s": 0.05}  # two cores, 12 s of work


@pytest.mark.parametrize(
    ("kind", "worked_s", "node", "granted"),
    [
        ("qemu", 8.0, NODE, 0.75),  # they counted 16 s of work, but their node did 12 s
        ("qemu", 5.0, NODE, 1.0),  # the node has work of its own, too
        ("qemu", 0.5, None, 1.0),
        ("lxc", 8.0, NODE, 1.0),  # counted by the node's kernel
    ],
)
def test_emulated_machines_count_standing_still_as_work(
    kind: str, worked_s: float, node: dict[str, float] | None, granted: float
) -> None:
    assert trial_cores.granted(hosts(kind, worked_s, node)) == pytest.approx(granted)


@pytest.mark.parametrize(
    ("kind", "nodes", "node", "granted", "cores"),
    [
        ("lxc", ("a", "a"), NODE, 1.0, 2),
        ("lxc", ("a", "b"), NODE, 1.0, None),
        ("lxc", ("a", "a"), None, 1.0, None),
        ("kvm", ("a", "a"), NODE, 0.99, None),  # no machine had to wait for the node's cores
        ("qemu", ("a", "a"), NODE, 0.6, 2),
    ],
)
def test_containers_and_machines_short_of_cores_share_those_of_their_node(
    kind: str, nodes: tuple[str, ...], node: dict[str, float] | None, granted: float, cores: int | None
) -> None:
    configured = Configured.model_construct(
        hosts={str(number): ConfiguredHost.model_construct(node=name) for number, name in enumerate(nodes)}
    )
    assert trial_cores.shared_cores(hosts(kind, 8.0, node), configured, granted) == cores
