"""From a trial and changed settings to a scenario, and the messages about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.predict import prediction
from dasklab.predict.whatif import parse, scenario
from dasklab.results.storage import documents
from dasklab.sim import build
from dasklab.sim.costs import IDLE_WORKER
from dasklab.sim.kernel import Kernel
from dasklab.sim.scenario import Scenario

from tests.unit.dasklab.predict.samples import CALIBRATION, PAYLOAD, TRIAL


def changed(*assignments: str) -> Scenario:
    return scenario(TRIAL, CALIBRATION, parse(assignments), seed=7)


def test_scenario_without_changes_has_the_trials_settings() -> None:
    unchanged = changed()
    assert (unchanged.workers, unchanged.threads, unchanged.bridge, unchanged.seed) == (2, 2, "learning", 7)
    assert unchanged.rates_mbit == pytest.approx(
        {"client": 9000, "scheduler": 100 * PAYLOAD, "worker-1": 200 * PAYLOAD, "worker-2": 400 * PAYLOAD}
    )
    assert unchanged.links["worker-2"].delay_ms == 5
    assert unchanged.tasks["add"] == ((0.0, 2.0, 100),)
    network = (unchanged.rtt_ms, unchanged.queue_bytes, unchanged.burst_bytes)
    assert (unchanged.driver_s, *network) == (0.5, 0.2, 5, 1000)


def test_changes_override_single_keys_and_additional_workers_resemble_the_first() -> None:
    more = changed("workers=3", "nics.worker-2.rate_mbit=0", "links.workers.delay_ms=7", "bridge=flooding")
    assert more.rates_mbit["worker-3"] == pytest.approx(200 * PAYLOAD)
    assert more.rates_mbit["worker-2"] == 9000
    assert (more.links["worker-2"].delay_ms, more.links["worker-2"].loss_pct) == (7, 1)
    assert (more.links["worker-3"].delay_ms, more.bridge) == (7, "flooding")


def test_rate_cap_above_the_uncapped_throughput_has_no_effect() -> None:
    fast = changed("lab_nic_rate_mbit=20000")
    assert fast.rates_mbit == dict.fromkeys(("client", "scheduler", "worker-1", "worker-2"), 9000)


def test_requested_cores_replace_the_recorded_waiting_for_cores() -> None:
    assert changed("cores=4").tasks["add"] == ((0.5, 1.0, 100),)


SHARED = CALIBRATION.model_copy(update={"cores": 2, "loop_cpu": {"scheduler": 0.6}})


def test_shared_cores_are_simulated_and_their_waiting_is_not_counted_twice() -> None:
    shared = scenario(TRIAL, SHARED, seed=0)
    assert (shared.cores, shared.tasks["add"]) == (2, ((0.5, 1.0, 100),))
    assert shared.driver_s == SHARED.driver_s  # the client had the cores to itself
    assert shared.costs["scheduler"].op_s == pytest.approx(0.0006)


def test_requested_waiting_or_own_cores_replace_shared_cores() -> None:
    waiting = scenario(TRIAL, SHARED, {"starved": 1}, seed=0)
    assert (waiting.cores, waiting.costs["scheduler"].op_s) == (None, pytest.approx(0.0012))
    own = scenario(TRIAL, SHARED, {"cores_each": 4}, seed=0)
    assert (own.cores, own.cores_each, own.tasks["add"]) == (None, 4, ((0.5, 1.0, 100),))
    assert scenario(TRIAL, SHARED, {"cores": 8}, seed=0).cores == 8


def test_additional_workers_take_a_part_of_shared_cores_when_idle() -> None:
    measured = SHARED.model_copy(update={"workers": 2})
    assert scenario(TRIAL, measured, {"workers": 12}, seed=0).cores == pytest.approx(2 - 10 * IDLE_WORKER)
    assert scenario(TRIAL, measured, {"workers": 12, "cores": 8}, seed=0).cores == pytest.approx(7.76)
    assert scenario(TRIAL, measured, {"workers": 1}, seed=0).cores == 2
    assert scenario(TRIAL, measured, {"workers": 500, "cores_each": 1}, seed=0).cores is None
    assert scenario(TRIAL, SHARED, {"workers": 12}, seed=0).cores == 2  # the trial's workers are unknown
    with pytest.raises(LabError, match=r"--set workers=500: idle workers alone would take all of 2\.0 cores"):
        scenario(TRIAL, measured, {"workers": 500}, seed=0)


def test_requested_waiting_applies_to_everything_that_needs_a_core() -> None:
    calm, crowded = changed("starved=0"), changed("starved=3")
    assert sum(calm.tasks["add"][0][:2]) == pytest.approx(0.5 + 1.0)
    assert sum(crowded.tasks["add"][0][:2]) == pytest.approx(0.5 * (1 + 3) + 1.0)
    assert sum(changed("starved=1").tasks["add"][0][:2]) == pytest.approx(2.0)
    scenarios = (calm, crowded, changed("cores=2"), changed())
    ops = [scenario.costs["scheduler"].op_s for scenario in scenarios]
    assert ops == pytest.approx([0.0005, 0.002, 0.0005, 0.001])
    assert (calm.driver_s, crowded.driver_s) == (0.25, 1.0)
    with_handoff = CALIBRATION.model_copy(update={"handoff_s": 0.002})
    all_changes = ({}, {"starved": 0}, {"starved": 3}, {"cores_each": 1}, {"worker_speed": 2})
    handoffs = [scenario(TRIAL, with_handoff, changes, seed=0).handoff_s for changes in all_changes]
    assert handoffs == pytest.approx([0.002, 0.001, 0.004, 0.001, 0.001])


def test_factors_multiply_rates_and_delays_and_speeds_divide_cpu_time() -> None:
    fast = changed("rate_times=2", "rtt_times=3")
    assert fast.rates_mbit["scheduler"] == pytest.approx(200 * PAYLOAD)
    assert fast.rates_mbit["client"] == 18_000  # a link without a rate cap, too
    assert (fast.rtt_ms, fast.links["worker-2"].delay_ms) == (pytest.approx(0.6), 15)
    workers = changed("worker_speed=2")
    # 0.5 s on a core and 0.5 s of waiting for one are halved; 1 s is neither
    assert sum(workers.tasks["add"][0][:2]) == pytest.approx(1.5)
    ops = [scenario.costs["scheduler"].op_s for scenario in (workers, changed("scheduler_speed=2"))]
    assert ops == [0.001, 0.0005]


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("wrokers=3", "--set wrokers: unknown setting; allowed: bridge,"),
        ("workers", "--set workers: write it as SETTING=VALUE"),
        ("distributed.comm.retry=1", "--set distributed.comm.retry=1: a setting of Dask begins"),
        ("workers=0", "--set: workers: should be greater than or equal to 1, got 0"),
        ("workload.name=idle", "--set workload: it cannot be changed"),
        ("layout=2x1", "--set layout: it cannot be changed"),
        ("nics.worker-9.rate_mbit=1", "--set nics.worker-9: no such host; allowed: client,"),
        ("links.cluster.delay=1", "--set: links.cluster.delay: unknown key; allowed: delay_ms,"),
        ("dask.distributed.comm.compression=lz4", "--set dask distributed.comm.compression: the simulation"),
        ("racks=[", "--set racks=[: '[' is not a value"),
    ],
)
def test_mistake_is_one_line(assignment: str, message: str) -> None:
    with pytest.raises(LabError) as mistake:
        changed(assignment)
    assert str(mistake.value).startswith(message)
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"resolved_scheduler": {"variant": "random"}}, "t: a cluster with other programs than Dask's"),
        ({"resolved_scheduler": {"command": "/opt/mine"}}, "t: a cluster with other programs than Dask's"),
        ({"worker": {"variant": "zero"}}, "t: a cluster with other programs than Dask's"),
        ({"packages": {"dask": "2024.8.0"}}, "t: dask 2024.8.0 is not simulated"),
        ({"layout": "2x1"}, "t: several workers on a host (2x1)"),
        ({"dask": {"distributed": {"comm": {"compression": "lz4"}}}}, "t: dask distributed.comm.compression"),
    ],
)
def test_cluster_that_is_not_simulated_is_refused(settings: dict[str, object], message: str) -> None:
    trial = RequestedTrial.model_validate({**TRIAL.model_dump(), **settings})
    with pytest.raises(LabError) as mistake:
        scenario(trial, CALIBRATION, {}, seed=0)
    assert str(mistake.value).startswith(message)


def test_link_setting_that_is_not_simulated_is_refused() -> None:
    with pytest.raises(LabError, match=r"links\.worker-1\.reorder_pct: the simulation does not model it"):
        build.network(changed("links.worker-1.reorder_pct=5", "links.worker-1.delay_ms=5"), Kernel())


def test_racks_that_do_not_hold_all_workers_are_refused() -> None:
    with pytest.raises(LabError, match="racks: they hold 1 workers, there are 2"):
        changed("racks=[{workers: 1}]").check()


def test_impairments_apply_to_the_requested_direction_and_bursts_to_sent_data() -> None:
    assignments = (
        "links.worker-1.rate_mbit=8",
        "links.worker-1.direction=ingress",
        "links.worker-1.delay_ms=3",
    )
    ports = build.network(changed(*assignments), Kernel()).ports
    assert (ports["worker-1"].down.rate, ports["worker-1"].down.burst) == (1e6, 0)
    assert (ports["worker-1"].received_delay_s, ports["worker-1"].delay_s) == (0.003, 0)
    assert ports["worker-1"].up.rate == pytest.approx(25e6 * PAYLOAD)
    assert (ports["worker-1"].up.burst, ports["worker-2"].down.burst) == (1000, 0)
    assert (ports["worker-2"].delay_s, ports["worker-2"].loss) == (0.005, 0.01)


def test_summary_has_the_mean_and_the_middle_90_percent() -> None:
    summary = prediction.summarize("x", [float(n) for n in range(101)], [4.0, 6.0], simulated=True)
    assert (summary.mean_s, summary.low_s, summary.high_s, summary.transfer_bytes) == (50, 5, 95, 5)


def test_directory_without_a_trial_is_reported_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["whatif", str(tmp_path)])
    assert (result.exit_code, result.output) == (1, f"dasklab: {tmp_path}: it has no trial.json\n")


@pytest.mark.parametrize("change", ["lab_nic_rate=100", "workers=0", "nics.worker-9.rate_mbit=1"])
def test_wrong_change_is_refused_before_the_calibration(change: str, tmp_path: Path) -> None:
    documents.write(tmp_path, TRIAL)  # without records: a calibration would fail with another message
    result = CliRunner().invoke(main, ["whatif", str(tmp_path), "--set", change])
    assert (result.exit_code, result.output.startswith("dasklab: --set")) == (1, True), result.output
    assert [path.name for path in tmp_path.iterdir()] == ["trial.json"]


def test_trial_without_records_is_reported_in_one_line(tmp_path: Path) -> None:
    documents.write(tmp_path, TRIAL)
    result = CliRunner().invoke(main, ["whatif", str(tmp_path)])
    assert result.exit_code == 1
    assert (
        result.output
        == f"dasklab: {tmp_path}: nothing was recorded inside Dask, it has no record/record.json\n"
    )
