"""The main job, end to end on real guests, in the order of a lab's life; each test builds on the last."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import requests
from proxmoxer import ProxmoxAPI

from tests.e2e.conftest import Bench
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.timeout(2700)]


def api(bench: Bench) -> Any:
    e = bench.endpoint
    return ProxmoxAPI(
        e["host"],
        port=e["port"],
        user=e["user"],
        token_name=e["token_id"],
        token_value=e["token_secret"],
        verify_ssl=e["ca_file"],
        timeout=60,
    )


def machines(bench: Bench) -> dict[str, dict[str, Any]]:
    return {vm["name"]: vm for vm in api(bench).nodes("pve").qemu.get()}


def running(bench: Bench) -> int:
    """How many machines run; none while the endpoint is being started."""
    try:
        found = machines(bench)
    except requests.ConnectionError:
        return 0
    return [machine["status"] for machine in found.values()].count("running")


def test_check_on_a_clean_host_plans_all_and_makes_nothing(bench: Bench) -> None:
    told = bench.good(*bench.playbook("provision", "--check", "--diff", "--tags", "endpoint,key,machines"))
    assert "POST /nodes/pve/qemu/9100/clone newid=9105 name=worker-3" in told
    assert machines(bench) == {}
    assert not (bench.folder / "state" / "ssh").exists()


def test_a_foreign_machine_is_refused_by_name_and_left_alone(bench: Bench) -> None:
    nodes = api(bench).nodes("pve")
    nodes.qemu.post(vmid=9103, name="mailserver", memory=64, pool="dasklab")
    until(lambda: "mailserver" in machines(bench), "the foreign machine")
    told = bench.bad("dasklab", "up", "--only", "provision")
    assert "VMID 9103 is needed for worker-1, but belongs to 'mailserver' on node pve" in told
    assert list(machines(bench)) == ["mailserver"]
    nodes.qemu(9103).delete()
    until(lambda: machines(bench) == {}, "the foreign machine's removal")


def test_an_endpoint_that_dies_in_mid_task_is_said_and_the_next_run_goes_on(bench: Bench) -> None:
    child = bench.start("dasklab", "up", "--only", "provision")
    until(lambda: "client" in machines(bench), "the first clone")
    os.kill(bench.endpoint_pid(), signal.SIGKILL)
    told = child.communicate(timeout=300)[0]
    assert child.returncode != 0
    assert "nothing listens there" in told or "the connection was cut" in told
    assert "Traceback" not in told


def test_ctrl_c_loses_nothing(bench: Bench) -> None:
    """The machines run then, but none answers yet: the next command has to wait for them."""
    child = bench.start("dasklab", "up", "--only", "provision")
    until(lambda: running(bench) == 5, "all machines to be started")
    told = bench.interrupt(child)
    assert child.returncode != 0
    assert "Traceback" not in told


def test_up_completes_what_was_begun_and_measures_a_baseline(bench: Bench) -> None:
    told = bench.good("dasklab", "up", timeout=2400)
    assert {n: vm["status"] for n, vm in machines(bench).items() if n != "dasklab-template"} == dict.fromkeys(
        ["client", "scheduler", "worker-1", "worker-2", "worker-3"], "running"
    )
    assert re.search(r"compute_s +3 ", told), told[-3000:]
    captures = list((bench.folder / "results").rglob("capture.pcap"))
    assert captures
    assert captures[0].stat().st_size > 10_000
    capture = json.loads(captures[0].with_name("completeness.json").read_text())
    assert (capture["verdict"], capture["left_behind"], capture["stream_seen"]) == ("complete", 0, 1), capture


def test_the_second_run_changes_nothing(bench: Bench) -> None:
    told = bench.good(*bench.playbook("lab"), timeout=600)
    assert re.search(r"changed=0, failed=0", told), told[-3000:]


def test_status_and_doctor_find_all_well(bench: Bench) -> None:
    told = bench.good("dasklab", "status")
    assert len(re.findall(r"^ *(client|scheduler|worker-\d) .* running ", told, re.M)) == 5, told
    told = bench.good("dasklab", "doctor")
    assert "FAIL" not in told


def test_the_machines_are_what_they_should_be(bench: Bench) -> None:
    """Nothing is skipped but what the hypervisor is asked, once and not five times."""
    assert re.search(r"passed, 4 skipped", bench.examine())


SLOW = """
title: A slow link
question: Does a trial that was killed leave its impairment behind?
metrics: {compute_s: ~, rtt_ms: ~}
links: {worker-1: {delay_ms: 80}}
workers: 1
workload: {name: array_study, params: {size: 100, chunk: 50}}
runs: 1
warmups: 0
blocks: 1
probes: {pings: 10, iperf_runs: 0}
tolerances: {foreign_pct: 100} # other tests are at work on this machine
"""


def test_a_trial_that_was_killed_is_run_again_and_leaves_no_impairment(bench: Bench) -> None:
    file = bench.folder / "slow.yml"
    file.write_text(SLOW)
    child = bench.start("dasklab", "run", str(file))
    results = bench.folder / "results" / "slow"
    done = "netem : Impair the lab link: "
    until(
        lambda: any(done in log.read_text() for log in results.glob("*/*/ansible.log")),
        "the trial",
        PATIENCE_S * 5,
    )
    impaired = "tc qdisc show | grep netem; true"
    assert "delay 80ms" in bench.ssh("worker-1", impaired)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()  # its playbook goes on: the next run must end it
    [run] = results.iterdir()
    assert not list(run.glob("*/attempt.json"))
    told = bench.good("dasklab", "run", str(run))
    verdicts = [json.loads(path.read_text()) for path in run.glob("*/result.json")]
    assert [(v["status"], v["reasons"]) for v in verdicts] == [("ok", [])], told[-3000:]
    hosts = ("scheduler", "worker-1", "worker-2", "worker-3")
    assert bench.ssh_each(hosts, impaired) == dict.fromkeys(hosts, "")


DRIVERS = "for nic in /sys/class/net/*/device/driver; do basename $(readlink -f $nic); done"


def test_nic_models_are_switched_and_the_guests_see_their_drivers(bench: Bench) -> None:
    wanted = {"worker-1": {"model": "e1000"}, "worker-2": {"model": "rtl8139"}}
    bench.good(*bench.playbook("provision", "-e", json.dumps({"proxmox_vm_nics": wanted})))
    seen = bench.ssh_each(("worker-1", "worker-2", "worker-3"), DRIVERS)
    assert {host: sorted(drivers.split()) for host, drivers in seen.items()} == {
        "worker-1": ["e1000", "virtio_net"],
        "worker-2": ["8139cp", "virtio_net"],
        "worker-3": ["virtio_net", "virtio_net"],
    }


def test_a_machine_that_dies_is_said_and_brought_back_as_the_inventory_has_it(bench: Bench) -> None:
    """It had another NIC than the inventory's, as has its neighbour still."""
    pid = api(bench).nodes("pve").qemu(9104).status.current.get()["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists(), "QEMU to end")
    assert re.search(r"worker-2 +9104 +pve +stopped", bench.good("dasklab", "status"))
    bench.good("dasklab", "up", "--only", "provision")
    assert machines(bench)["worker-2"]["status"] == "running"
    dask = "/opt/dask/bin/python -c 'import distributed; print(distributed.__version__)'"
    assert "2026" in bench.ssh("worker-2", dask)
    seen = bench.ssh_each(("worker-1", "worker-2"), DRIVERS)
    assert [drivers.split() for drivers in seen.values()] == [["virtio_net"] * 2] * 2


def test_destroy_leaves_nothing(bench: Bench) -> None:
    before = {p.name for p in Path("/sys/class/net").iterdir()}
    assert [line for line in bench.processes() if "[mux]" in line], "no shared connection is seen"
    bench.good("dasklab", "destroy", "--yes")
    assert bench.processes() == []
    assert not (bench.folder / "state").exists()
    assert {p.name for p in Path("/sys/class/net").iterdir()} == before
    assert not [p for p in before if p.startswith(("tap", "vmbr"))], "the host has the lab's devices"
    assert list((bench.folder / "results").rglob("timings.json")), "results are kept"


def test_destroy_of_nothing_is_well(bench: Bench) -> None:
    bench.good("dasklab", "destroy", "--yes")
    assert bench.processes() == []
