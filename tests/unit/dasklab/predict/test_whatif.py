"""From a trial and changes to a scenario; and how mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.model.trial import Trial
from dasklab.predict import prediction
from dasklab.predict.calibration import Calibration, Tasks
from dasklab.predict.whatif import parse, scenario
from dasklab.results.storage import store
from dasklab.sim import build
from dasklab.sim.costs import IDLE_WORKER, Costs
from dasklab.sim.kernel import Kernel
from dasklab.sim.scenario import Scenario

PAYLOAD = 1448 / 1514
CALIBRATION = Calibration(
    experiment="e",
    trial="t",
    cell="baseline",
    machine="lxc",
    versions={},
    tasks={"add": Tasks(seen=((2.0, 100),), cpu_share=0.25)},
    starved=1.0,
    costs={"scheduler": Costs(op_s=0.001)},
    driver_s=0.5,
    threads=2,
    rtt_ms=0.2,
    free_mbit=9000,
    burst_bytes=1000,
    queue_bytes=5,
)
TRIAL = Trial.model_validate(
    {
        "experiment": "e",
        "trial": "t",
        "cell": "baseline",
        "block": 1,
        "baseline": True,
        "null": False,
        "factors": {},
        "workers": 2,
        "links": {"worker-2": {"delay_ms": 5, "loss_pct": 1}},
        "nics": {
            "client": {"rate_mbit": 0},
            "scheduler": {"rate_mbit": 100},
            "worker-1": {"rate_mbit": 200},
            "worker-2": {"rate_mbit": 400},
        },
        "tested": [],
        "captured_runs": 0,
    }
)


def changed(*given: str) -> Scenario:
    return scenario(TRIAL, CALIBRATION, parse(given), seed=7)


def test_without_changes_it_is_the_trial_as_it_was() -> None:
    found = changed()
    assert (found.workers, found.threads, found.bridge, found.seed) == (2, 2, "learning", 7)
    assert found.rates_mbit == pytest.approx(
        {"client": 9000, "scheduler": 100 * PAYLOAD, "worker-1": 200 * PAYLOAD, "worker-2": 400 * PAYLOAD}
    )
    assert found.links["worker-2"].delay_ms == 5
    assert found.tasks["add"] == ((0.0, 2.0, 100),)
    assert (found.rtt_ms, found.driver_s, found.queue_bytes, found.burst_bytes) == (0.2, 0.5, 5, 1000)


def test_a_change_is_laid_over_the_hosts_own_and_a_worker_more_is_like_the_first() -> None:
    found = changed("workers=3", "nics.worker-2.rate_mbit=0", "links.workers.delay_ms=7", "bridge=flooding")
    assert found.rates_mbit["worker-3"] == pytest.approx(200 * PAYLOAD)
    assert found.rates_mbit["worker-2"] == 9000
    assert (found.links["worker-2"].delay_ms, found.links["worker-2"].loss_pct) == (7, 1)
    assert (found.links["worker-3"].delay_ms, found.bridge) == (7, "flooding")


def test_the_lab_s_rate_is_that_of_scheduler_and_workers_and_no_faster_than_without_a_cap() -> None:
    found = changed("lab_nic_rate_mbit=20000")
    assert found.rates_mbit == dict.fromkeys(("client", "scheduler", "worker-1", "worker-2"), 9000)


def test_on_cores_of_a_number_a_task_needs_them_and_does_not_wait_for_them_as_it_did() -> None:
    # of 2 s: 0.5 on a core, as much waiting for one; 1 s is left that is neither
    assert changed("cores=4").tasks["add"] == ((0.5, 1.0, 100),)


SHARED = CALIBRATION.model_copy(update={"cores": 2, "loop_cpu": {"scheduler": 0.6}})


def test_cores_that_machines_shared_are_simulated_and_not_waited_for_once_more() -> None:
    found = scenario(TRIAL, SHARED, seed=0)
    # of 2 s 0.5 on a core and as much waiting for one, which the simulation finds by itself
    assert (found.cores, found.tasks["add"]) == (2, ((0.5, 1.0, 100),))
    assert found.driver_s == SHARED.driver_s  # the client had the cores to itself
    assert found.costs["scheduler"].op_s == pytest.approx(0.0006)


def test_waiting_that_is_said_or_cores_of_its_own_take_the_place_of_shared_ones() -> None:
    waiting = scenario(TRIAL, SHARED, {"starved": 1}, seed=0)
    assert (waiting.cores, waiting.costs["scheduler"].op_s) == (None, pytest.approx(0.0012))
    own = scenario(TRIAL, SHARED, {"cores_each": 4}, seed=0)
    assert (own.cores, own.cores_each, own.tasks["add"]) == (None, 4, ((0.5, 1.0, 100),))
    assert scenario(TRIAL, SHARED, {"cores": 8}, seed=0).cores == 8


def test_workers_that_were_not_there_take_a_part_of_shared_cores_with_nothing_to_do() -> None:
    measured = SHARED.model_copy(update={"workers": 2})
    assert scenario(TRIAL, measured, {"workers": 12}, seed=0).cores == pytest.approx(2 - 10 * IDLE_WORKER)
    assert scenario(TRIAL, measured, {"workers": 12, "cores": 8}, seed=0).cores == pytest.approx(7.76)
    assert scenario(TRIAL, measured, {"workers": 1}, seed=0).cores == 2
    assert scenario(TRIAL, measured, {"workers": 500, "cores_each": 1}, seed=0).cores is None
    assert scenario(TRIAL, SHARED, {"workers": 12}, seed=0).cores == 2  # nobody knows of how many it was
    with pytest.raises(LabError, match=r"--set workers=500: on 2.0 cores so many take all of them"):
        scenario(TRIAL, measured, {"workers": 500}, seed=0)


def test_under_another_load_all_that_needs_a_core_waits_for_it_as_much_as_is_said() -> None:
    calm, worse = changed("starved=0"), changed("starved=3")
    assert sum(calm.tasks["add"][0][:2]) == pytest.approx(0.5 + 1.0)
    assert sum(worse.tasks["add"][0][:2]) == pytest.approx(0.5 * (1 + 3) + 1.0)
    assert sum(changed("starved=1").tasks["add"][0][:2]) == pytest.approx(2.0)
    ops = [found.costs["scheduler"].op_s for found in (calm, worse, changed("cores=2"), changed())]
    assert ops == pytest.approx([0.0005, 0.002, 0.0005, 0.001])
    assert (calm.driver_s, worse.driver_s) == (0.25, 1.0)
    handed = CALIBRATION.model_copy(update={"handoff_s": 0.002})
    asked = ({}, {"starved": 0}, {"starved": 3}, {"cores_each": 1}, {"worker_speed": 2})
    waits = [scenario(TRIAL, handed, changes, seed=0).handoff_s for changes in asked]
    assert waits == pytest.approx([0.002, 0.001, 0.004, 0.001, 0.001])


def test_times_are_of_what_is_there_and_speeds_of_what_a_core_does() -> None:
    quick = changed("rate_times=2", "rtt_times=3")
    assert quick.rates_mbit["scheduler"] == pytest.approx(200 * PAYLOAD)
    assert quick.rates_mbit["client"] == 18_000  # also what no cap holds back
    assert (quick.rtt_ms, quick.links["worker-2"].delay_ms) == (pytest.approx(0.6), 15)
    workers = changed("worker_speed=2")
    # of 2 s: 0.5 on a core and as much waiting for one are halved, 1 s is neither
    assert sum(workers.tasks["add"][0][:2]) == pytest.approx(1.5)
    ops = [found.costs["scheduler"].op_s for found in (workers, changed("scheduler_speed=2"))]
    assert ops == [0.001, 0.0005]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("wrokers=3", "--set wrokers: unknown setting; allowed: bridge,"),
        ("workers", "--set workers: write it as SETTING=VALUE"),
        ("workers=0", "--set: workers: should be greater than or equal to 1, got 0"),
        ("workload.name=idle", "--set workload: it cannot be changed"),
        ("layout=2x1", "--set layout: it cannot be changed"),
        ("nics.worker-9.rate_mbit=1", "--set nics.worker-9: no such host; allowed: client,"),
        ("links.cluster.delay=1", "--set: links.cluster.delay: unknown key; allowed: delay_ms,"),
        ("dask.distributed.comm.compression=lz4", "--set dask distributed.comm.compression: the simulation"),
        ("racks=[", "--set racks=[: '[' is no value"),
    ],
)
def test_a_mistake_is_one_line(given: str, said: str) -> None:
    with pytest.raises(LabError) as mistake:
        changed(given)
    assert str(mistake.value).startswith(said)
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"resolved_scheduler": {"variant": "random"}}, "t: a cluster with other programs than Dask's"),
        ({"resolved_scheduler": {"command": "/opt/mine"}}, "t: a cluster with other programs than Dask's"),
        ({"worker": {"variant": "zero"}}, "t: a cluster with other programs than Dask's"),
        ({"packages": {"dask": "2024.8.0"}}, "t: dask 2024.8.0 is not simulated"),
        ({"layout": "2x1"}, "t: several workers on a host (2x1)"),
        ({"dask": {"distributed": {"comm": {"compression": "lz4"}}}}, "t: dask distributed.comm.compression"),
    ],
)
def test_a_cluster_that_is_not_modelled_is_refused(other: dict[str, object], said: str) -> None:
    trial = Trial.model_validate({**TRIAL.model_dump(), **other})
    with pytest.raises(LabError) as mistake:
        scenario(trial, CALIBRATION, {}, seed=0)
    assert str(mistake.value).startswith(said)


def test_what_the_network_does_not_know_is_refused() -> None:
    with pytest.raises(LabError, match=r"links\.worker-1\.reorder_pct: the simulation does not model it"):
        build.network(changed("links.worker-1.reorder_pct=5", "links.worker-1.delay_ms=5"), Kernel())
    with pytest.raises(LabError, match="racks: they hold 1 workers, there are 2"):
        build.network(changed("racks=[{workers: 1}]"), Kernel())


def test_ports_are_capped_with_a_burst_and_impaired_in_the_direction_asked_for() -> None:
    asked = ("links.worker-1.rate_mbit=8", "links.worker-1.direction=ingress", "links.worker-1.delay_ms=3")
    ports = build.network(changed(*asked), Kernel()).ports
    assert (ports["worker-1"].down.rate, ports["worker-1"].down.burst) == (1e6, 0)
    assert (ports["worker-1"].received_delay_s, ports["worker-1"].delay_s) == (0.003, 0)
    assert ports["worker-1"].up.rate == pytest.approx(25e6 * PAYLOAD)
    assert (ports["worker-1"].up.burst, ports["worker-2"].down.burst) == (1000, 0)
    assert (ports["worker-2"].delay_s, ports["worker-2"].loss) == (0.005, 0.01)


def test_a_row_has_mean_and_nine_tenths() -> None:
    found = prediction.row("x", [float(n) for n in range(101)], [4.0, 6.0], simulated=True)
    assert (found.mean_s, found.low_s, found.high_s, found.transfer_bytes) == (50, 5, 95, 5)


def test_a_folder_that_is_no_trial_is_told_in_one_line(tmp_path: Path) -> None:
    said = CliRunner().invoke(main, ["whatif", str(tmp_path)])
    assert (said.exit_code, said.output) == (1, f"dasklab: {tmp_path}: it has no trial.json\n")


@pytest.mark.parametrize("change", ["lab_nic_rate=100", "workers=0", "nics.worker-9.rate_mbit=1"])
def test_a_wrong_change_is_refused_before_the_calibration(change: str, tmp_path: Path) -> None:
    """The trial has no records, so that a calibration would fail."""
    store.write(tmp_path, TRIAL)
    said = CliRunner().invoke(main, ["whatif", str(tmp_path), "--set", change])
    assert (said.exit_code, said.output.startswith("dasklab: --set")) == (1, True), said.output
    assert [path.name for path in tmp_path.iterdir()] == ["trial.json"]


def test_a_trial_without_records_is_told_in_one_line(tmp_path: Path) -> None:
    store.write(tmp_path, TRIAL)
    said = CliRunner().invoke(main, ["whatif", str(tmp_path)])
    assert said.exit_code == 1
    assert said.output == f"dasklab: {tmp_path}: nothing was recorded inside Dask, it has no records.json\n"
