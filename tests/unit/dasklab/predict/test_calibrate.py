"""What a trial's probes say of its network."""

from __future__ import annotations

import pytest
from dasklab.model.files import Configured, ConfiguredHost, HostFacts, Hosts, Measured, Throughput
from dasklab.predict import calibrate

from tests.unit.dasklab.predict.test_whatif import CALIBRATION, TRIAL


def delivered(*throughput: tuple[str, str, float]) -> Measured:
    pair = {"phase": "before", "pings": 2}
    return Measured.model_validate(
        {
            "rtt": [
                {"src": "scheduler", "dst": "worker-1", "samples_ms": [0.1, 0.3], **pair},
                {"src": "worker-1", "dst": "worker-2", "samples_ms": [5.2, 5.2], **pair},
            ],
            "throughput": [
                {"src": a, "dst": b, "phase": "before", "proto": "tcp", "mbit": mbit, "seconds": 1}
                for a, b, mbit in throughput
            ],
        }
    )


def test_the_round_trip_is_the_networks_without_the_delay_that_was_asked_for() -> None:
    assert calibrate._rtt_ms(TRIAL, delivered()) == pytest.approx(0.2)
    assert calibrate._rtt_ms(TRIAL, Measured()) == 0.1


def test_links_without_a_cap_deliver_what_was_measured_between_two_of_them() -> None:
    clear = TRIAL.model_copy(update={"links": {}, "nics": {"worker-2": TRIAL.nics["worker-2"]}})
    probes = delivered(
        ("scheduler", "worker-1", 9000.0), ("worker-1", "scheduler", 7000.0), ("worker-1", "worker-2", 90.0)
    )
    assert calibrate._free_mbit(clear, probes) == 8000
    assert calibrate._free_mbit(TRIAL, probes) == 0


@pytest.mark.parametrize(("control", "stands"), [("bbr", 87_000), ("cubic", 131_072), (None, 131_072)])
def test_what_stands_before_a_full_link_is_its_senders_doing(control: str | None, stands: float) -> None:
    host = {"interface": "eth1", "driver": "veth", "mtu": 1500, "offloads": {}}
    found = ConfiguredHost.model_validate({**host, "congestion_control": control}) if control else None
    read = Configured(hosts={"worker-1": found} if found else {})
    assert calibrate._queue_bytes(read) == stands


@pytest.mark.parametrize(("method", "burst"), [("police", 1024 * 1024), ("shape-ifb", 0), (None, 0)])
def test_only_a_policer_lets_a_burst_through(method: str | None, burst: float) -> None:
    assert calibrate._burst_bytes(Configured(rate_method=method)) == burst


def machines(kind: str, worked_s: float, node: dict[str, float] | None) -> Hosts:
    """Two machines of ten seconds, in which each worked so many."""
    cpu = {"user_s": worked_s - 0.5, "softirq_s": 0.5, "idle_s": 10 - worked_s, "steal_s": 3.0}
    machine = HostFacts.model_construct(virtualization=kind, seconds=10.0, cpu=cpu)
    found = Hosts.model_validate({"hypervisor": {"name": "a", "accel": kind, "cpu": node}})
    return found.model_copy(update={"hosts": {"worker-1": machine, "worker-2": machine}})


NODE = {"user_s": 11.0, "system_s": 1.0, "idle_s": 7.9, "steal_s": 0.05}  # two cores worked for 12 s


@pytest.mark.parametrize(
    ("kind", "worked_s", "node", "given"),
    [
        ("qemu", 8.0, NODE, 0.75),  # stood still for a quarter of what they count
        ("qemu", 5.0, NODE, 1.0),  # the node has work of its own, too
        ("qemu", 0.5, None, 1.0),
        ("lxc", 8.0, NODE, 1.0),  # counted by the node's kernel, whoever is asked
    ],
)
def test_emulated_machines_count_as_work_what_they_stood_still_for_others(
    kind: str, worked_s: float, node: dict[str, float] | None, given: float
) -> None:
    assert calibrate._given(machines(kind, worked_s, node)) == pytest.approx(given)


@pytest.mark.parametrize(
    ("kind", "nodes", "node", "given", "cores"),
    [
        ("lxc", ("a", "a"), NODE, 1.0, 2),
        ("lxc", ("a", "b"), NODE, 1.0, None),
        ("lxc", ("a", "a"), None, 1.0, None),
        ("kvm", ("a", "a"), NODE, 0.99, None),  # its guests lacked nothing: none waited for the node's cores
        ("qemu", ("a", "a"), NODE, 0.6, 2),
    ],
)
def test_containers_and_machines_that_lack_cores_share_their_nodes(
    kind: str, nodes: tuple[str, ...], node: dict[str, float] | None, given: float, cores: int | None
) -> None:
    hosts = {str(n): ConfiguredHost.model_construct(node=name) for n, name in enumerate(nodes)}
    configured = Configured.model_construct(hosts=hosts)
    assert calibrate._cores(machines(kind, 8.0, node), configured, given) == cores


def test_what_stands_before_a_full_link_makes_the_models_ping_as_long_as_the_measured() -> None:
    # from the scheduler (100 Mbit/s) to worker-1 (200): 12 ms more under load
    loaded = {"src": "scheduler", "dst": "worker-1", "phase": "before", "proto": "tcp", "mbit": 95.0}
    probes = delivered().model_copy(
        update={
            "throughput": (Throughput.model_validate(loaded | {"seconds": 1, "rtt_ms": [12.1, 12.2, 12.9]}),)
        }
    )
    found = calibrate._standing_bytes(TRIAL, probes, CALIBRATION)
    payload = 1448 / 1514 * 125_000
    assert found == pytest.approx(0.012 / (1 / (100 * payload) + 1 / (200 * payload)))
    narrow = CALIBRATION.model_copy(update={"free_mbit": 90.0})  # the cap does not bind: pings wait for cores
    assert calibrate._standing_bytes(TRIAL, probes, narrow) is None
    assert calibrate._standing_bytes(TRIAL, delivered(("scheduler", "worker-1", 95.0)), CALIBRATION) is None
