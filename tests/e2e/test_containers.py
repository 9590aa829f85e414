"""A lab of containers, end to end: build, measure, check, replace by virtual machines, remove."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import daskwire
import pytest
import yaml
from dasklab import records
from dasklab.breakdown.model.causes import AGAIN
from dasklab.breakdown.show.explain import explain
from dasklab.model.files import CaptureReport
from dasklab.paths import EXPERIMENTS
from dasklab.results.run import open_trial

from tests.contract.lab.dry_lab import TEMPLATES
from tests.e2e.conftest import Bench
from tests.e2e.test_lab import api
from tests.waiting import PATIENCE_S, until

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("lxc-start") is None, reason="no LXC here: apt install lxc"),
]
TESTS_BESIDE_THIS_ONE = {"tolerances": {"foreign_pct": 100}}  # they use CPUs of this machine
NAMES = ["client", "scheduler", "worker-1", "worker-2", "worker-3"]


def guests(bench: Bench, kind: str) -> dict[str, str]:
    """Return names and states of the guests of one kind."""
    return {row["name"]: row["status"] for row in getattr(api(bench).nodes("pve"), kind).get()}


def test_up_creates_containers_and_measures_a_baseline_without_mitogen(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole lab with Ansible's own strategy; the tests after this one use the lab through Mitogen."""
    monkeypatch.setitem(bench.environment, "ANSIBLE_STRATEGY", "linear")
    output = bench.good("dasklab", "up", "--guests", "container")
    assert guests(bench, "lxc") == dict.fromkeys(NAMES, "running")
    assert guests(bench, "qemu") == {}
    assert re.search(r"Baseline: \S+ m?s to compute \(.* in 3 repeats\); links ", output), output[-3000:]
    trial = next((bench.folder / "results").rglob("completeness.json")).parent
    assert json.loads((trial / "completeness.json").read_text())["verdict"] == "complete"
    configured = json.loads((trial / "configured.json").read_text())
    assert {host["driver"] for host in configured["hosts"].values()} == {"veth"}


def test_trial_is_recorded_and_nothing_is_fetched_while_a_run_is_captured(bench: Bench) -> None:
    trial = next((bench.folder / "results").rglob("capture.json")).parent
    for captured in (False, True):
        explained = explain(open_trial(trial), captured)
        assert sum(explained.summary.breakdown.values()) == pytest.approx(
            explained.summary.makespan_s, rel=1e-3
        )
        assert len(records.load(trial, captured)["calls"])
    repeats = [
        (sample.start, sample.stop) for sample in open_trial(trial).require(CaptureReport).timings.samples
    ]
    fetches = [
        op["time_ns"] / 1e9
        for op in daskwire.rows(daskwire.open_capture(trial / "capture.pcap").table("ops"))
        if op["op"] in ("dasklab_take", "broadcast")
    ]
    assert fetches
    assert not [time for time in fetches for start, stop in repeats if start <= time <= stop]


def test_death_of_a_worker_is_explained_with_what_was_computed_again(bench: Bench, tmp_path: Path) -> None:
    """The experiment ``faults`` as it is shipped, in its short form: its baseline and a kill."""
    experiment = yaml.safe_load((EXPERIMENTS / "faults.yml").read_text())
    file = tmp_path / "faults.yml"
    file.write_text(yaml.safe_dump(experiment | TESTS_BESIDE_THIS_ONE, sort_keys=False))
    bench.good("dasklab", "run", str(file), "--quick", "--only", "fault=kill", "--blocks", "1", "--no-wait")
    [trial] = (bench.folder / "results").glob("faults/*/*fault=kill")
    explained = explain(open_trial(trial))
    assert explained.summary.by_cause[AGAIN] > 0
    output = bench.good("dasklab", "explain", "--all", str(trial))
    assert re.search(r"^Repeat \d: worker-2 died ", output, re.M), output
    assert AGAIN.title in output, output


def test_second_run_changes_nothing_and_status_lists_all(bench: Bench) -> None:
    output = bench.good(*bench.playbook("lab"))
    assert re.search(r"changed=0, failed=0", output), output[-3000:]
    output = bench.good("dasklab", "status")
    assert (
        len(re.findall(r"^ *(client|scheduler|worker-\d) .* running +veth on vmbr1 ", output, re.M)) == 5
    ), output


def test_links_that_others_changed_are_named_and_corrected(bench: Bench) -> None:
    def spoil() -> None:
        bench.ssh("worker-1", "tc qdisc add dev eth1 root tbf rate 30mbit burst 10k latency 50ms")
        bench.ssh("worker-2", "ip link set eth1 down")

    spoil()
    named = ("worker-1: eth1 has a qdisc tbf ", "worker-2: eth1 is down")
    assert all(text in bench.good("dasklab", "status") for text in named)
    assert all(text in bench.bad("dasklab", "doctor") for text in named)
    for host, text in (("worker-1", "; removed qdisc tbf "), ("worker-2", "; set eth1 up.")):
        assert text in bench.good("dasklab", "tc", host, "reset")
    spoil()
    output = bench.good("dasklab", "up", "--only", "configure")
    assert "worker-1: removed qdisc tbf " in output and "worker-2: set eth1 up" in output
    assert "changed=2, failed=0" in output, output[-3000:]
    assert "has a qdisc" not in bench.good("dasklab", "status")
    bench.ssh("worker-2", "ping -c 1 10.77.1.13 >/dev/null")


def test_changed_unit_is_restored_and_reloaded(bench: Bench) -> None:
    unit = "/etc/systemd/system/dask-worker.service"
    bench.good("dasklab", "ssh", "worker-1", "--", f"echo '# not the lab' >> {unit}; systemctl daemon-reload")
    output = bench.good("dasklab", "up", "--only", "configure", "--diff")
    assert "-# not the lab" in output
    check = f"grep -c 'not the lab' {unit}; systemctl show -p NeedDaemonReload dask-worker"
    assert bench.good("dasklab", "ssh", "worker-1", "--", check).split() == ["0", "NeedDaemonReload=no"]


def test_containers_pass_the_host_checks(bench: Bench) -> None:
    """Java and py-spy come with trials; the kernel may have no netem; no guest is a virtual machine."""
    assert bench.examine() <= {"netem", "profile", "proxmox_endpoint", "spark"}


def test_capture_contains_foreign_frames_only_on_a_flooding_bridge(bench: Bench) -> None:
    frames = {}
    for mode in ("flooding", "learning"):
        bench.good(*bench.playbook("bridge", "-e", f"proxmox_bridge_mode={mode}"))
        frames[mode] = foreign_frames(bench)
    assert frames["flooding"] >= 20
    assert frames["learning"] <= 2


def foreign_frames(bench: Bench) -> int:
    """Return how many of 20 pings between two workers reach the client's capture NIC."""
    bench.ssh("worker-1", "ping -c 2 10.77.1.14 >/dev/null")
    find = "nic=$(grep -li 02:da:5c:23:8d:02 /sys/class/net/*/address | cut -d/ -f5)"
    capture = "timeout 600 tcpdump -i $nic -nn 'icmp and host 10.77.1.13' 2>/dev/null | wc -l"
    child = bench.start("dasklab", "ssh", "client", "--", f"{find}; ip link set $nic up; {capture}")
    until(lambda: bench.ssh("client", "pgrep -c tcpdump; true") != "0", "the capture")
    bench.ssh("worker-1", "ping -i 0.1 -c 20 10.77.1.14 >/dev/null")
    bench.ssh("client", "pkill tcpdump")
    return int(child.communicate(timeout=PATIENCE_S)[0].strip().splitlines()[-1])


@pytest.mark.parametrize("policer", [False, True])
def test_link_of_a_container_is_shaped_or_policed(bench: Bench, policer: bool) -> None:
    link = {"rate_mbit": 50, "direction": "both", "policer": policer}
    request = json.dumps({"links": [link], "ttl_s": 60})
    try:
        output = bench.ssh("worker-1", f"/opt/dasklab/bin/dasklab-guest link apply '{request}'")
    finally:
        cleared = bench.ssh("worker-1", "/opt/dasklab/bin/dasklab-guest link clear")
    links = json.loads(output)["configured"]
    assert [(link["direction"], link["rate_mbit"]) for link in links] == [("egress", 50), ("ingress", 50)]
    assert all(link["policer"] == policer for link in links)
    assert json.loads(cleared)["configured"] == []


@dataclass(frozen=True)
class Swept:
    """A run that was killed during its second trial, and the output of the command that resumed it."""

    run: Path
    finished: dict[Path, int]
    output: str


@pytest.fixture(scope="module")
def swept(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    file = tmp_path_factory.mktemp("experiment") / "links.yml"
    file.write_text(LINKS)
    file.with_name("mywork.py").write_text(WORKLOAD)
    child = bench.start("dasklab", "run", str(file), "--skip-unsupported")
    results = bench.folder / "results" / "links"
    until(lambda: len(list(results.glob("*/*/attempt.json"))) == 1, "the first trial", PATIENCE_S * 5)
    until(lambda: len(list(results.glob("*/*/trial.json"))) == 2, "the second trial's start")
    os.kill(child.pid, signal.SIGKILL)
    child.wait()  # its playbook continues; the next command must end it
    [run] = results.iterdir()
    finished = {path: path.stat().st_mtime_ns for path in run.glob("*/attempt.json")}
    return Swept(run, finished, bench.good("dasklab", "run", str(run)))


TEXT = " ".join(TEMPLATES)
LINKS = """
question: What does a link of a lab of containers take, and is its run resumed?
metrics: {compute_s: ~, throughput_mbit: ~}
factors:
  link:
    levels:
      50M: {nics: {worker-1: {rate_mbit: 50}}}
      e1000: {nics: {worker-1: {model: e1000}}}
      vm: {guests: {worker-1: {kind: vm}}, nics: {worker-1: {rate_mbit: 50}}}
seed: 25 # the virtual machine comes last, after the killed trial
workers: 1
repeats: 1
blocks: 1
warmups: 0
probes: {pings: 3, iperf_runs: 1, iperf_s: 2} # a busy machine sends too little in one second
repeat_s: 1
tolerances: {foreign_pct: 100} # other tests use this machine
""" + yaml.safe_dump(
    {
        "title": f"Links {TEXT}",
        "workload": {"name": "mywork", "params": {"tasks": 40, "text": TEXT}},
        "dask": {"distributed": {"nanny": {"environ": {"TEXT": TEXT}}}},
    }
)
WORKLOAD = f'''
"""A workload of the user's own, beside the experiment's file."""

from zlib import crc32

from _harness import Job, main

TEXT = {TEXT!r}


def prepare(client, tasks=20, text=""):
    def run(number):
        text_sum = client.submit(crc32, text.encode(), pure=False).result() + crc32(TEXT.encode())
        return float(sum(client.gather(client.map(abs, range(tasks), pure=False)))) + text_sum

    return Job(run, expected=tasks * (tasks - 1) / 2 + {2 * crc32(TEXT.encode())}, tasks=tasks)


if __name__ == "__main__":
    main(prepare)
'''


def test_run_killed_during_a_trial_loses_only_that_trial(bench: Bench, swept: Swept) -> None:
    modified = {path: path.stat().st_mtime_ns for path in swept.finished}
    assert modified == swept.finished, "a finished trial was run again"
    verdicts = [json.loads(path.read_text()) for path in swept.run.glob("*/result.json")]
    ran = [verdict["reasons"] for verdict in verdicts if verdict["status"] == "ok"]
    assert ran == [[]] * 3, swept.output[-3000:]
    page = bench.good("dasklab", "report", str(swept.run)).strip().splitlines()[-1]
    assert "a container, which has veth" in Path(page).read_text()


def test_own_workload_runs_on_the_guests(swept: Swept) -> None:
    timings = [json.loads(path.read_text()) for path in swept.run.glob("*/timings.json")]
    assert [(timing["workload"], timing["tasks"]) for timing in timings] == [("mywork", 40)] * 3
    assert {timing["params"]["text"] for timing in timings} == {TEXT}
    configs = [config for timing in timings for config in timing["config"].values()]
    assert {config["distributed.nanny.environ.TEXT"] for config in configs} == {TEXT}
    assert not list(swept.run.parents[2].rglob("executed"))


def test_container_supports_a_rate_cap_but_no_other_nic_model(bench: Bench, swept: Swept) -> None:
    assert re.search(r"unsupported +\S*e1000", swept.output), swept.output
    assert "NIC e1000 of worker-1: it is a container, which has veth" in swept.output
    # A busy machine may send less than the cap allows, never more.
    [trial] = swept.run.glob("*link=50M")
    probes = json.loads((trial / "measured.json").read_text())["throughput"]
    capped = [probe["mbit"] for probe in probes if "worker-1" in (probe["src"], probe["dst"])]
    assert len(capped) == 4 and max(capped) < 52, swept.output
    assert "rate=5.9604645" in json.loads((trial / "configured.json").read_text())["hosts"]["worker-1"]["net"]
    nets = [api(bench).nodes("pve").lxc(vmid).config.get()["net1"] for vmid in range(9101, 9106)]
    assert not [net for net in nets if "rate=" in net], "the trial's cap was not removed"


def test_virtual_machine_replaces_a_container_for_one_trial(bench: Bench, swept: Swept) -> None:
    [trial] = swept.run.glob("*link=vm")
    configured = json.loads((trial / "configured.json").read_text())
    drivers = {name: host["driver"] for name, host in configured["hosts"].items()}
    assert drivers == {**dict.fromkeys(NAMES, "veth"), "worker-1": "virtio_net"}
    assert guests(bench, "lxc") == dict.fromkeys(NAMES, "running")
    assert guests(bench, "qemu") == {"dasklab-template": "stopped"}


def test_plan_replaces_containers_by_virtual_machines(bench: Bench) -> None:
    machines = json.dumps({"lab_guests": "vm"})
    output = bench.good(*bench.playbook("provision", "--check", "--diff", "-e", machines))
    assert "DELETE /nodes/pve/lxc/9105" in output
    assert "POST /nodes/pve/qemu/9100/clone newid=9105 name=worker-3" in output


def test_destroy_leaves_nothing(bench: Bench) -> None:
    bench.good("dasklab", "destroy", "--yes")
    assert bench.processes() == []
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(bench.folder) not in mounts
