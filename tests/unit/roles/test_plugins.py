"""Filters and the file action: pure parts, and the action's commands run by a real shell."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from dasklab.paths import PLAYBOOKS
from dasklab.paths import SHARE as ROOT

FILE = """auto vmbr0
iface vmbr0 inet static
\taddress 10.0.0.1/24
\tbridge-ports eno1

auto vmbr1
iface vmbr1 inet manual
\tbridge-ports none
\tbridge-fd 0

# the end
"""


def test_only_the_lab_bridge_gets_an_ageing_time(interfaces: ModuleType) -> None:
    edited = interfaces.bridge_ageing(FILE, "vmbr1", 0)
    assert edited == FILE.replace("\tbridge-fd 0\n", "\tbridge-fd 0\n\tbridge-ageing 0\n")
    assert interfaces.bridge_ageing(edited, "vmbr1", 0) == edited


@pytest.mark.parametrize("old", ["bridge-ageing 300", "bridge_ageing 300", "bridge-ageing\t15"])
def test_an_ageing_time_that_is_there_is_replaced(interfaces: ModuleType, old: str) -> None:
    before = FILE.replace("\tbridge-fd 0\n", f"\t{old}\n\tbridge-fd 0\n")
    assert interfaces.bridge_ageing(before, "vmbr1", 0).count("ageing") == 1


def test_a_file_without_newline_at_its_end_is_well(interfaces: ModuleType) -> None:
    text = "iface vmbr1 inet manual\n\tbridge-ports none"
    assert interfaces.bridge_ageing(text, "vmbr1", 0) == f"{text}\n\tbridge-ageing 0\n"


def test_a_bridge_that_is_not_there_is_an_error(interfaces: ModuleType) -> None:
    with pytest.raises(AnsibleFilterError, match="no bridge vmbr10"):
        interfaces.bridge_ageing(FILE, "vmbr10", 0)


def test_files_are_seen_written_and_seen_again(lab_files: ModuleType, tmp_path: Path) -> None:
    files = [
        lab_files.File(f"{tmp_path}/a/one", b"eins\n", "0755"),
        lab_files.File(f"{tmp_path}/two with spaces", b"\x7fELF\xff", "0640"),
    ]

    def look() -> set[str]:
        command = lab_files.look_command(files)
        return set(subprocess.run(["sh", "-c", command], capture_output=True, text=True).stdout.splitlines())

    assert look() == lab_files.told_of(look()) == set()
    subprocess.run(["tar", "-x", "-C", "/"], input=lab_files.archive(files), check=True)
    assert look() == set().union(*map(lab_files.wanted_lines, files))
    (tmp_path / "a" / "one").chmod(0o644)
    assert not lab_files.wanted_lines(files[0]) <= look()
    assert lab_files.told_of(look()) == {file.path for file in files}


def test_the_archive_holds_no_absolute_path(lab_files: ModuleType) -> None:
    archive = lab_files.archive([lab_files.File("/etc/x", b"", "0644")])
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert tar.getnames() == ["etc/x"]


def test_one_contract_holds_the_options_of_all_roles(roles: ModuleType) -> None:
    contract = roles.role_contract(["base", "netem", "capture"], str(ROOT / "roles"))
    assert {"netem_links", "capture_fetch_to"} <= set(contract)
    assert contract["netem_ttl_s"] == {"type": "int"}
    assert contract["base_directory"]["type"] == "path"


def test_what_roles_bring_is_there_and_below_the_lab_s_directory(roles: ModuleType) -> None:
    files = roles.role_files(["netem", "probe"], str(ROOT / "roles"))
    assert [file["path"] for file in files if file["path"].startswith(("/", "."))] == []
    assert {"bin/dasklab_link.py", "reset.d/netem", "bin/dasklab_probe.py"} <= {
        file["path"] for file in files
    }
    sources = [PLAYBOOKS / file["src"] for file in files if "src" in file]
    assert sources
    assert all(source.is_file() for source in sources)


def answers(user_s: float, **more: Any) -> dict[str, Any]:
    lab = {"name": "eth1", "driver": "virtio_net", "mtu": 1500, "offloads": {"tso": True}}
    counted = {"cpu": {"user_s": user_s}, "tcp": {"OutSegs": 1}, "softnet_dropped": 0, "time": user_s}
    document = {"lab": {**lab, "statistics": {"rx_bytes": 5}}, "qdiscs": [], "congestion_control": "cubic"}
    return {**document, **counted, **more}


def found() -> dict[str, Any]:
    ping = {"src": "scheduler", "dst": "worker-1", "samples_ms": [1.0], "pings": 1}
    probe = {"phase": "before", "rtt": {"rtt": [ping]}, "throughput": {"throughput": [], "errors": []}}
    facts = {
        "kernel": "6.1",
        "os": "Debian",
        "cpus": 1,
        "memory_mb": 1024,
        "versions": {},
        "name": "scheduler",
    }
    before = answers(10, virtualization="qemu", clock_offset_s=0.5, **facts)
    netem = {"direction": "egress", "peer": None, "policer": False, "delay_ms": 50}
    link = {"configured": [netem]}
    return {
        "scheduler": {"before": before, "after": answers(25.5), "link": link, "probes": [probe], "net": ""}
    }


TIMINGS = {
    "schema": 3,
    "workload": "array_study",
    "params": {},
    "tasks": None,
    "samples": [],
    "check": {"expected": 1, "answer": 1, "tolerance": 0, "ok": True},
    "cluster": {"workers": 3, "threads": 3, "addresses": {}},
    "versions": {},
}


def bridge(ageing_time: int) -> str:
    return json.dumps([{"ifname": "vmbr1", "linkinfo": {"info_data": {"ageing_time": ageing_time}}}])


def documents(trial: ModuleType, node: list[list[str]]) -> dict[str, Any]:
    files = trial.trial_files(found(), "/r", TIMINGS, node, "pve" if node else "")
    return {file["path"]: json.loads(file["content"]) for file in files}


def test_a_fault_is_a_file_of_the_trial_and_without_one_there_is_none(trial: ModuleType) -> None:
    assert "/r/faults.json" not in documents(trial, [])
    seen = {"at_s": 1.0, "lasted_s": 3.0, "state": "down"}
    hosts = {"scheduler": found()["scheduler"] | {"fault": seen}}
    written = {file["path"]: file["content"] for file in trial.trial_files(hosts, "/r", TIMINGS, [], "")}
    assert json.loads(written["/r/faults.json"])["hosts"] == {"scheduler": seen}


def test_a_trial_becomes_four_files(trial: ModuleType) -> None:
    node = [
        [bridge(0), "cpu 100 0 0 50"],
        [bridge(30000), "cpu 300 0 0 60", "  action order 1:  police 0x1 rate 10Mbit"],
    ]
    files = documents(trial, node)
    assert sorted(files) == ["/r/configured.json", "/r/hosts.json", "/r/measured.json", "/r/timings.json"]
    configured = files["/r/configured.json"]
    assert configured["bridge"] == {"name": "vmbr1", "ageing_s": 300}
    assert configured["rate_method"] == "police"
    assert configured["hosts"]["scheduler"]["link"][0]["delay_ms"] == 50
    assert files["/r/measured.json"]["rtt"][0]["phase"] == "before"
    hosts = files["/r/hosts.json"]
    assert hosts["hosts"]["scheduler"]["cpu"] == {"user_s": 15.5}
    assert hosts["hosts"]["scheduler"]["kernel"] == "6.1"
    assert hosts["hypervisor"]["accel"] == "tcg"
    assert hosts["hypervisor"]["cpu"]["user_s"] == 2


def test_what_dask_recorded_is_a_file_of_its_own(trial: ModuleType) -> None:
    files = trial.trial_files(found(), "/r", {**TIMINGS, "inside": "eJw="}, [], "")
    recorded = {file["path"]: json.loads(file["content"]) for file in files}
    assert recorded["/r/records.json"] == {"schema": 3, "records": "eJw="}
    assert "inside" not in recorded["/r/timings.json"]


def test_without_a_hypervisor_there_is_no_bridge(trial: ModuleType) -> None:
    files = documents(trial, [])
    assert files["/r/configured.json"]["bridge"] is None
    assert files["/r/hosts.json"]["hypervisor"] == {
        "name": None,
        "accel": "tcg",
        "cpu": None,
        "lab_cpu_s": None,
        "pressure_pct": {},
    }


def test_an_answer_that_this_version_does_not_know_is_one_line(trial: ModuleType) -> None:
    with pytest.raises(AnsibleFilterError, match=r"^the workload's timings: sise: ") as refused:
        trial.trial_files(found(), "/r", {**TIMINGS, "sise": 1}, [], "")
    assert "\n" not in str(refused.value)


def failure(trial: ModuleType, result: dict[str, Any], host: str = "h", task: str = "t") -> dict[str, Any]:
    (file,) = trial.trial_failure(result, host, task, "/r")
    assert file["path"] == "/r/failed.json"
    content: dict[str, Any] = json.loads(file["content"])
    return content


def test_a_failure_tells_its_last_words(trial: ModuleType) -> None:
    failed = failure(trial, {"rc": 1, "stdout": "a\nno route to host\n"}, "worker-1", "Impair the lab link")
    assert failed["status"] == "failed"
    assert failed["reasons"] == ["worker-1: Impair the lab link: no route to host"]
    assert failure(trial, {"msg": "timed out"})["reasons"] == ["h: t: timed out"]
    over_ssh = {"rc": 1, "stdout": "no peer 'x'\r\n", "stderr": "Shared connection to 10.77.0.13 closed.\n"}
    assert failure(trial, over_ssh)["reasons"] == ["h: t: no peer 'x'"]
    at_once = {"rc": 1, "stdout": "[]", "stderr": "Cannot find device"}
    assert failure(trial, at_once)["reasons"] == ["h: t: Cannot find device"]


def test_what_a_machine_cannot_do_is_unsupported(trial: ModuleType) -> None:
    failed = failure(trial, {"msg": "unsupported: tc: qdisc kind is unknown"}, "worker-1", "Impair")
    assert failed["status"] == "unsupported"
    assert failed["reasons"] == ["worker-1: Impair: tc: qdisc kind is unknown"]
    refused = failure(trial, {"msg": "unsupported: bridge flooding: no hypervisor"})
    assert (refused["status"], refused["reasons"]) == (
        "unsupported",
        ["h: t: bridge flooding: no hypervisor"],
    )


def test_a_guest_and_the_node_tell_the_times_of_their_cpus_alike(trial: ModuleType, host: ModuleType) -> None:
    """The guest's program stands alone, so it has a list of its own."""
    assert trial.NODE_CPU_FIELDS == host.CPU_FIELDS


def shared(trial: ModuleType, namespace: str | None = "pid:[5]", **after: float) -> dict[str, Any]:
    """The hypervisor of a trial in which the lab used 4 s of CPU, unless more is said."""
    host = found()["scheduler"]
    host["before"] |= {"virtualization": "lxc"} | ({"pid_namespace": namespace} if namespace != "old" else {})
    counters = {"lab_ticks": 500.0, "memory_stall_us": 1e6, "disk_stall_us": 0.0, "uptime_s": 20.0} | after
    node = [
        [bridge(0), "cpu 100 0 0 50", *words({"lab_ticks": 100, "memory_stall_us": 0, "uptime_s": 10})],
        [bridge(0), "cpu 900 0 0 250", *words(counters)],
    ]
    [hosts] = [
        file for file in trial.trial_files({"scheduler": host}, "/r", TIMINGS, node, "pve")
        if file["path"] == "/r/hosts.json"
    ]  # fmt: skip
    return dict(json.loads(hosts["content"])["hypervisor"])


def words(counters: dict[str, float]) -> list[str]:
    return [f"{name} {value:g}" for name, value in counters.items()]


def test_what_the_lab_itself_used_of_its_node_is_told_apart(trial: ModuleType) -> None:
    hypervisor = shared(trial)
    assert hypervisor["cpu"]["user_s"] == 8 and hypervisor["lab_cpu_s"] == 4
    assert hypervisor["pressure_pct"] == {"memory": 10.0}
    assert shared(trial, lab_ticks=0.0)["lab_cpu_s"] == 0


@pytest.mark.parametrize("namespace", [None, "old"])
def test_of_a_container_that_its_node_cannot_tell_nothing_is_said(
    trial: ModuleType, namespace: str | None
) -> None:
    """Its program may be older than this: all that it used would be taken for others'."""
    assert shared(trial, namespace)["lab_cpu_s"] is None


def test_a_labs_processes_name_a_guests_mac_a_namespace_or_the_trial(trial: ModuleType) -> None:
    guests = {"w": {"nets": {"net1": "virtio=02:DA:5C:00:00:01,bridge=vmbr1"}}}
    hostvars = {
        "localhost": {"proxmox_vm_result": {"guests": guests}},
        "w": {},
        "c": {"guest_described": {"answer": {"pid_namespace": "pid:[7]"}}},
    }
    assert trial.lab_words(["w", "c"], hostvars, "/results/1-01-x") == [
        "02:DA:5C:00:00:01",
        "pid:[7]",
        "/results/1-01-x",
    ]
