"""What calibration derives from a trial's probes and settings."""

from __future__ import annotations

import pytest
from dasklab.model.files import Configured, ConfiguredHost, Measured, Throughput
from dasklab.predict import trial_links

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
    assert trial_links.rtt_ms(TRIAL, measured()) == pytest.approx(0.2)
    assert trial_links.rtt_ms(TRIAL, Measured()) == 0.1


def test_uncapped_throughput_is_the_median_between_unlimited_hosts() -> None:
    clear = TRIAL.model_copy(update={"links": {}, "nics": {"worker-2": TRIAL.nics["worker-2"]}})
    probes = measured(
        ("scheduler", "worker-1", 9000.0), ("worker-1", "scheduler", 7000.0), ("worker-1", "worker-2", 90.0)
    )
    assert trial_links.uncapped_mbit(clear, probes) == 8000
    assert trial_links.uncapped_mbit(TRIAL, probes) == 0


@pytest.mark.parametrize(("control", "queue"), [("bbr", 87_000), ("cubic", 131_072), (None, 131_072)])
def test_assumed_queue_depends_on_congestion_control(control: str | None, queue: float) -> None:
    values = {"interface": "eth1", "driver": "veth", "mtu": 1500, "offloads": {}}
    hosts = {"worker-1": ConfiguredHost(congestion_control=control, **values)} if control else {}
    assert trial_links.assumed_queue_bytes(Configured(hosts=hosts)) == queue


@pytest.mark.parametrize(("method", "burst"), [("police", 1024 * 1024), ("shape-ifb", 0), (None, 0)])
def test_only_a_policer_passes_a_burst(method: str | None, burst: float) -> None:
    assert trial_links.burst_bytes(Configured(rate_method=method)) == burst


def test_measured_queue_makes_the_models_ping_under_load_as_long_as_the_measured_one() -> None:
    # From the scheduler (100 Mbit/s) to worker-1 (200 Mbit/s): 12 ms more under load
    loaded = {"src": "scheduler", "dst": "worker-1", "phase": "before", "proto": "tcp", "mbit": 95.0}
    throughput = Throughput.model_validate(loaded | {"seconds": 1, "rtt_ms": [12.1, 12.2, 12.9]})
    probes = measured().model_copy(update={"throughput": (throughput,)})
    queue_bytes = trial_links.measured_queue_bytes(TRIAL, probes, CALIBRATION)
    payload = 1448 / 1514 * 125_000  # bytes/s of each Mbit/s
    assert queue_bytes == pytest.approx(0.012 / (1 / (100 * payload) + 1 / (200 * payload)))


def test_no_queue_is_measured_where_the_cap_is_no_bottleneck_or_no_pings_ran() -> None:
    loaded = {"src": "scheduler", "dst": "worker-1", "phase": "before", "proto": "tcp", "mbit": 95.0}
    throughput = Throughput.model_validate(loaded | {"seconds": 1, "rtt_ms": [12.1]})
    probes = measured().model_copy(update={"throughput": (throughput,)})
    narrow = CALIBRATION.model_copy(update={"uncapped_mbit": 90.0})
    assert trial_links.measured_queue_bytes(TRIAL, probes, narrow) is None
    without_pings = measured(("scheduler", "worker-1", 95.0))
    assert trial_links.measured_queue_bytes(TRIAL, without_pings, CALIBRATION) is None
