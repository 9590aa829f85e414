"""A lab of virtual machines, end to end. The tests run in order; each builds on the one before."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import requests
from minipve.base import process
from minipve.base.paths import Paths
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
    """Return how many machines run; 0 while the endpoint starts."""
    try:
        guests = machines(bench)
    except requests.ConnectionError:
        return 0
    return [machine["status"] for machine in guests.values()].count("running")


def test_check_on_a_clean_host_plans_everything_and_creates_nothing(bench: Bench) -> None:
    output = bench.good(*bench.playbook("provision", "--check", "--diff", "--tags", "endpoint,key,machines"))
    assert "POST /nodes/pve/qemu/9100/clone newid=9105 name=worker-3" in output
    assert machines(bench) == {}
    assert not (bench.folder / "state" / "ssh").exists()


def test_foreign_machine_is_refused_by_name_and_not_touched(bench: Bench) -> None:
    nodes = api(bench).nodes("pve")
    nodes.qemu.post(vmid=9103, name="mailserver", memory=64, pool="dasklab")
    until(lambda: "mailserver" in machines(bench), "the foreign machine")
    output = bench.bad("dasklab", "up", "--only", "provision")
    assert "VMID 9103 is needed for worker-1, but belongs to 'mailserver' on node pve" in output
    assert list(machines(bench)) == ["mailserver"]
    nodes.qemu(9103).delete()
    until(lambda: machines(bench) == {}, "the foreign machine's removal")


def test_endpoint_killed_during_a_task_is_reported(bench: Bench) -> None:
    child = bench.start("dasklab", "up", "--only", "provision")
    until(lambda: "client" in machines(bench), "the first clone")
    os.kill(bench.endpoint_pid(), signal.SIGKILL)
    output = child.communicate(timeout=300)[0]
    assert child.returncode != 0
    assert "nothing listens there" in output or "the connection was cut" in output
    assert "Traceback" not in output


def test_ctrl_c_during_up_leaves_machines_running(bench: Bench) -> None:
    """The machines run but do not answer yet, so the next command must wait for them."""
    child = bench.start("dasklab", "up", "--only", "provision")
    until(lambda: running(bench) == 5, "all machines to be started")
    output = bench.interrupt(child)
    assert child.returncode != 0
    assert "Traceback" not in output


def test_up_completes_an_interrupted_lab_and_measures_a_baseline(bench: Bench) -> None:
    output = bench.good("dasklab", "up", timeout=2400)
    assert {n: vm["status"] for n, vm in machines(bench).items() if n != "dasklab-template"} == dict.fromkeys(
        ["client", "scheduler", "worker-1", "worker-2", "worker-3"], "running"
    )
    assert re.search(r"Baseline: \S+ m?s to compute \(.* in 3 repeats\); links ", output), output[-3000:]
    captures = list((bench.folder / "results").rglob("capture.pcap"))
    assert captures
    assert captures[0].stat().st_size > 10_000
    capture = json.loads(captures[0].with_name("completeness.json").read_text())
    assert (capture["verdict"], capture["left_behind"], capture["stream_seen"]) == ("complete", 0, 1), capture


def test_second_run_changes_nothing(bench: Bench) -> None:
    output = bench.good(*bench.playbook("lab"), timeout=600)
    assert re.search(r"changed=0, failed=0", output), output[-3000:]


def test_status_and_doctor_report_no_problem(bench: Bench) -> None:
    output = bench.good("dasklab", "status")
    assert len(re.findall(r"^ *(client|scheduler|worker-\d) .* running ", output, re.M)) == 5, output
    output = bench.good("dasklab", "status", "--json")  # Ansible's progress, then the rows
    rows = json.loads(output[output.rindex("\n[\n") :])
    assert [(row["status"], row["answers"]) for row in rows] == [("running", True)] * 5
    output = bench.good("dasklab", "doctor")
    assert "FAIL" not in output


def test_machines_pass_the_host_checks(bench: Bench) -> None:
    """Java and py-spy come with trials; no guest is a container."""
    assert bench.examine() <= {"profile", "proxmox_endpoint", "spark"}


def test_machines_boot_the_kernel_kept_beside_the_golden_image(bench: Bench) -> None:
    """The cache may have images of other recipes, too, also newer ones."""
    kernels = set()
    for vmid in range(9101, 9106):
        pid = api(bench).nodes("pve").qemu(vmid).status.current.get()["pid"]
        words = process.command(int(pid))
        kernels.add(Path(words[words.index("-kernel") + 1]))
    assert len(kernels) == 1 and kernels <= set(Paths.of().images.glob("*/boot-*/kernel"))


SLOW = """
title: A slow link
question: Does a trial that was killed leave its impairment behind?
metrics: {compute_s: ~, rtt_ms: ~}
links: {worker-1: {delay_ms: 80}}
workers: 1
workload: {name: array_study, params: {size: 100, chunk: 50}}
repeats: 1
warmups: 0
blocks: 1
probes: {pings: 10, iperf_runs: 0}
tolerances: {foreign_pct: 100} # other tests use this machine
"""


def test_killed_trial_is_run_again_and_leaves_no_impairment(bench: Bench) -> None:
    file = bench.folder / "slow.yml"
    file.write_text(SLOW)
    child = bench.start("dasklab", "run", str(file))
    results = bench.folder / "results" / "slow"
    prepared = "Run phase 'prepare': "  # the line that ends the first phase, which impairs the link
    until(
        lambda: any(prepared in log.read_text() for log in results.glob("*/*/ansible.log")),
        "the trial",
        PATIENCE_S * 5,
    )
    impaired = "tc qdisc show | grep netem; true"
    assert "delay 80ms" in bench.ssh("worker-1", impaired)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()  # its playbook continues; the next command must end it
    [run] = results.iterdir()
    assert not list(run.glob("*/attempt.json"))
    output = bench.good("dasklab", "run", str(run))
    verdicts = [json.loads(path.read_text()) for path in run.glob("*/result.json")]
    assert [(v["status"], v["reasons"]) for v in verdicts] == [("ok", [])], output[-3000:]
    hosts = ("scheduler", "worker-1", "worker-2", "worker-3")
    assert bench.ssh_each(hosts, impaired) == dict.fromkeys(hosts, "")


DRIVERS = "for nic in /sys/class/net/*/device/driver; do basename $(readlink -f $nic); done"


def test_guests_use_the_drivers_of_their_nic_models(bench: Bench) -> None:
    models = {"worker-1": {"model": "e1000"}, "worker-2": {"model": "rtl8139"}}
    bench.good(*bench.playbook("provision", "-e", json.dumps({"proxmox_vm_nics": models})))
    loaded = bench.ssh_each(("worker-1", "worker-2", "worker-3"), DRIVERS)
    assert {host: sorted(drivers.split()) for host, drivers in loaded.items()} == {
        "worker-1": ["e1000", "virtio_net"],
        "worker-2": ["8139cp", "virtio_net"],
        "worker-3": ["virtio_net", "virtio_net"],
    }


def test_killed_machine_is_reported_and_restored_to_match_the_inventory(bench: Bench) -> None:
    """Before, it had another NIC model than in the inventory, as its neighbour still has."""
    pid = api(bench).nodes("pve").qemu(9104).status.current.get()["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists(), "QEMU to end")
    assert re.search(r"worker-2 +9104 +pve +stopped", bench.good("dasklab", "status"))
    bench.good("dasklab", "up", "--only", "provision")
    assert machines(bench)["worker-2"]["status"] == "running"
    dask = "/opt/dask/bin/python -c 'import distributed; print(distributed.__version__)'"
    assert "2026" in bench.ssh("worker-2", dask)
    loaded = bench.ssh_each(("worker-1", "worker-2"), DRIVERS)
    assert [drivers.split() for drivers in loaded.values()] == [["virtio_net"] * 2] * 2


def test_destroy_leaves_nothing(bench: Bench) -> None:
    before = {p.name for p in Path("/sys/class/net").iterdir()}
    assert [line for line in bench.processes() if "[mux]" in line], "no shared ssh connection is running"
    bench.good("dasklab", "destroy", "--yes")
    assert bench.processes() == []
    assert not (bench.folder / "state").exists()
    assert {p.name for p in Path("/sys/class/net").iterdir()} == before
    assert not [p for p in before if p.startswith(("tap", "vmbr"))], "the host has the lab's devices"
    assert list((bench.folder / "results").rglob("timings.json")), "results were removed"


def test_destroy_without_a_lab_succeeds(bench: Bench) -> None:
    bench.good("dasklab", "destroy", "--yes")
    assert bench.processes() == []
