"""What calibration derives from a trial's probes, and from the CPU time of its machines."""

from __future__ import annotations

import pytest
from dasklab.model.files import Configured, ConfiguredHost, HostFacts, Hosts, Measured, Throughput
from dasklab.predict import calibrate

from tests.unit.dasklab.predict.samples import CALIBRATION, TRIAL


def measured(*throughput: tuple[str, str, float]) -> Measured:
    """Two pings of scheduler and worker-1, two of both workers (with worker-2's 5 ms), and iperf runs."""
    phase = {"phase": "before"}
    return Measured.model_validate(
        {
            "rtt": [
                {"src": "scheduler", "dst": "worker-1", "samples_ms": [0.1, 0.3], "pings": 2, **phase},
                {"src": "worker-1", "dst": "worker-2", "samples_ms": [5.2, 5.2], "pings": 2, **phase},
            ],
            "throughput": [
                {"src": src, "dst": dst, "proto": "tcp", "mbit": mbit, "seconds": 1, **phase}
                for src, dst, mbit in throughput
            ],
        }
    )


def test_round_trip_does_not_include_the_requested_delay() -> None:
    assert calibrate._rtt_ms(TRIAL, measured()) == pytest.approx(0.2)
    assert calibrate._rtt_ms(TRIAL, Measured()) == 0.1


def test_uncapped_throughput_is_the_median_between_unlimited_hosts() -> None:
    clear = TRIAL.model_copy(update={"links": {}, "nics": {"worker-2": TRIAL.nics["worker-2"]}})
    probes = measured(
        ("scheduler", "worker-1", 9000.0), ("worker-1", "scheduler", 7000.0), ("worker-1", "worker-2", 90.0)
    )
    assert calibrate._uncapped_mbit(clear, probes) == 8000
    assert calibrate._uncapped_mbit(TRIAL, probes) == 0


@pytest.mark.parametrize(("control", "queue"), [("bbr", 87_000), ("cubic", 131_072), (None, 131_072)])
def test_assumed_queue_depends_on_congestion_control(control: str | None, queue: float) -> None:
    values = {"interface": "eth1", "driver": "veth", "mtu": 1500, "offloads": {}}
    hosts = {"worker-1": ConfiguredHost(congestion_control=control, **values)} if control else {}
    assert calibrate._assumed_queue_bytes(Configured(hosts=hosts)) == queue


@pytest.mark.parametrize(("method", "burst"), [("police", 1024 * 1024), ("shape-ifb", 0), (None, 0)])
def test_only_a_policer_passes_a_burst(method: str | None, burst: float) -> None:
    assert calibrate._burst_bytes(Configured(rate_method=method)) == burst


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
    assert calibrate._granted(hosts(kind, worked_s, node)) == pytest.approx(granted)


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
    assert calibrate._shared_cores(hosts(kind, 8.0, node), configured, granted) == cores


def test_measured_queue_makes_the_models_ping_under_load_as_long_as_the_measured_one() -> None:
    # From the scheduler (100 Mbit/s) to worker-1 (200 Mbit/s): 12 ms more under load
    loaded = {"src": "scheduler", "dst": "worker-1", "phase": "before", "proto": "tcp", "mbit": 95.0}
    throughput = Throughput.model_validate(loaded | {"seconds": 1, "rtt_ms": [12.1, 12.2, 12.9]})
    probes = measured().model_copy(update={"throughput": (throughput,)})
    queue_bytes = calibrate._measured_queue_bytes(TRIAL, probes, CALIBRATION)
    payload = 1448 / 1514 * 125_000  # bytes/s of each Mbit/s
    assert queue_bytes == pytest.approx(0.012 / (1 / (100 * payload) + 1 / (200 * payload)))


def test_no_queue_is_measured_where_the_cap_is_no_bottleneck_or_no_pings_ran() -> None:
    loaded = {"src": "scheduler", "dst": "worker-1", "phase": "before", "proto": "tcp", "mbit": 95.0}
    throughput = Throughput.model_validate(loaded | {"seconds": 1, "rtt_ms": [12.1]})
    probes = measured().model_copy(update={"throughput": (throughput,)})
    narrow = CALIBRATION.model_copy(update={"uncapped_mbit": 90.0})
    assert calibrate._measured_queue_bytes(TRIAL, probes, narrow) is None
    without_pings = measured(("scheduler", "worker-1", 95.0))
    assert calibrate._measured_queue_bytes(TRIAL, without_pings, CALIBRATION) is None
