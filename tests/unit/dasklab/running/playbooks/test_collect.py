"""What the hosts answered becomes the files of a trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.model.files import Configured, Hosts, Measured, ObservedFaults
from dasklab.results.storage import documents
from dasklab.running.playbooks import collect

TIMINGS = {
    "schema": 4,
    "workload": "array_study",
    "params": {},
    "tasks": None,
    "samples": [],
    "check": {"expected": 1, "answer": 1, "tolerance": 0, "ok": True},
    "cluster": {"workers": 3, "threads": 3, "addresses": {}},
    "versions": {},
}


def counters(user_s: float) -> dict[str, Any]:
    """Return the answer of ``host.counters``."""
    lab = {"name": "eth1", "driver": "virtio_net", "mtu": 1500, "offloads": {"tso": True}}
    return {
        "name": "scheduler",
        "time": user_s,
        "cpu": {"user_s": user_s},
        "pid_namespace": None,
        "tcp": {"OutSegs": 1},
        "softnet_dropped": 0,
        "congestion_control": "cubic",
        "lab": {**lab, "statistics": {"rx_bytes": 5}},
        "qdiscs": [],
    }


def answers(**description: Any) -> dict[str, Any]:
    """Return the answers of a host: a delay of 50 ms, 15.5 s of CPU during the repeats."""
    ping = {"src": "scheduler", "dst": "worker-1", "samples_ms": [1.0], "pings": 1}
    netem = {"direction": "egress", "peer": None, "policer": False, "delay_ms": 50}
    facts = {"kernel": "6.1", "os": "Debian", "cpus": 1, "memory_mb": 1024, "versions": {}}
    described = {**counters(10), **facts, "virtualization": "qemu", "clock_offset_s": 0.5, **description}
    return {
        "prepare": {"link.apply": {"configured": [netem]}},
        "probe-rtt-before": {"probe.rtt": {"rtt": [ping]}},
        "probe-throughput-before": {"probe.throughput": {"throughput": [], "errors": []}},
        "start": {"host.describe": described},
        "stop": {"host.counters": counters(25.5)},
    }


def bridge(ageing_time: int) -> str:
    return json.dumps([{"ifname": "vmbr1", "linkinfo": {"info_data": {"ageing_time": ageing_time}}}])


def node(**after: float) -> list[list[str]]:
    """Return two looks at a node. Between them the lab used 4 s of CPU, unless ``after`` says otherwise."""
    last = {"lab_ticks": 500.0, "memory_stall_us": 1e6, "disk_stall_us": 0.0, "uptime_s": 20.0, **after}
    first = {"lab_ticks": 100, "memory_stall_us": 0, "uptime_s": 10}
    return [
        [bridge(0), "cpu 100 0 0 50", *(f"{name} {value:g}" for name, value in first.items())],
        [bridge(30000), "cpu 900 0 0 250", *(f"{name} {value:g}" for name, value in last.items())],
    ]


def collected(folder: Path, timings: Any = TIMINGS, looks: Any = (), **more: Any) -> Path:
    """Write what a playbook leaves in a trial's folder, and collect it."""
    host = folder / collect.FOLDER / "scheduler"
    host.mkdir(parents=True, exist_ok=True)
    (host / "answers.json").write_text(json.dumps({**answers(), **more}))
    (host / "timings.json").write_text(json.dumps(timings))
    (folder / collect.FOLDER / "node.json").write_text(json.dumps(looks))
    collect.collect(folder, "pve" if looks else "")
    return folder


def test_answers_become_four_files(tmp_path: Path) -> None:
    looks = node()
    looks[1].append("  action order 1:  police 0x1 rate 10Mbit")
    folder = collected(tmp_path, looks=looks)
    names = {path.name for path in folder.iterdir()}
    assert names == {"configured.json", "hosts.json", "measured.json", "timings.json"}
    configured = documents.require(Configured, folder)
    assert configured.bridge is not None
    assert (configured.bridge.name, configured.bridge.ageing_s) == ("vmbr1", 300)
    assert configured.rate_method == "police"
    assert configured.hosts["scheduler"].link[0].delay_ms == 50
    assert documents.require(Measured, folder).rtt[0].phase == "before"
    hosts = documents.require(Hosts, folder)
    assert hosts.hosts["scheduler"].cpu == {"user_s": 15.5}
    assert hosts.hosts["scheduler"].kernel == "6.1"
    assert hosts.hypervisor.accel == "tcg"
    assert hosts.hypervisor.cpu is not None and hosts.hypervisor.cpu["user_s"] == 8


def test_lab_without_hypervisor_has_no_bridge(tmp_path: Path) -> None:
    folder = collected(tmp_path)
    assert documents.require(Configured, folder).bridge is None
    hypervisor = documents.require(Hosts, folder).hypervisor
    assert (hypervisor.name, hypervisor.cpu, hypervisor.lab_cpu_s) == (None, None, None)


def test_record_becomes_a_folder_of_the_trial(tmp_path: Path) -> None:
    record = tmp_path / collect.FOLDER / "scheduler" / "record"
    record.mkdir(parents=True)
    (record / "record.json").write_text("{}")
    folder = collected(tmp_path)
    assert (folder / "record" / "record.json").read_text() == "{}"


def test_effect_of_a_fault_is_kept(tmp_path: Path) -> None:
    effect = {"at_s": 1.0, "lasted_s": 3.0, "state": "down"}
    folder = collected(tmp_path, stop={"fault.end": effect, "host.counters": counters(25.5)})
    assert documents.require(ObservedFaults, folder).hosts["scheduler"].model_dump() == effect


def test_captures_and_profiles_are_kept_as_they_are(tmp_path: Path) -> None:
    host = tmp_path / collect.FOLDER / "worker-1"
    host.mkdir(parents=True, exist_ok=True)
    for name in ("capture.pcap", "profile.json", "profile-2.json", "profile-timings.json"):
        (host / name).write_text("{}")
    (host / "answers.json").write_text(json.dumps(answers()))
    folder = collected(tmp_path)
    names = {path.name for path in folder.iterdir()}
    assert {"capture.pcap", "profile-worker-1.json", "profile-worker-1-2.json"} <= names
    assert not (folder / collect.FOLDER).exists()


def test_unknown_answer_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"^the workload's timings: colour: ") as raised:
        collected(tmp_path, {**TIMINGS, "colour": 1})
    assert "\n" not in raised.value.message


def test_missing_timings_are_an_error(tmp_path: Path) -> None:
    (tmp_path / collect.FOLDER).mkdir()
    with pytest.raises(LabError, match=r"the client left no timings\.json"):
        collect.collect(tmp_path, "")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"stdout": "a\nno route to host\n"}, "no route to host"),
        ({"msg": "timed out"}, "timed out"),
        ({"stdout": "no peer 'x'\r\n", "stderr": "Shared connection to 10.77.0.13 closed.\n"}, "no peer 'x'"),
        ({"stdout": "[]", "stderr": "dasklab-guest: no such device"}, "no such device"),
        ({}, "no reason given"),
    ],
)
def test_reason_of_a_failure_is_the_last_line(result: dict[str, Any], reason: str, tmp_path: Path) -> None:
    failures(tmp_path, {"worker-1": result})
    failed = collect.failure(tmp_path)
    assert failed is not None and failed.status == "failed"
    assert failed.reasons == (f"worker-1: Run phase 'run': {reason}",)


def test_host_that_cannot_do_it_comes_first(tmp_path: Path) -> None:
    failures(tmp_path, {"client": {"msg": "lost"}, "worker-1": {"stderr": "unsupported: tc: no netem"}})
    failed = collect.failure(tmp_path)
    assert failed is not None and failed.status == "unsupported"
    assert failed.reasons == ("worker-1: Run phase 'run': tc: no netem",)


def failures(folder: Path, results: dict[str, dict[str, Any]]) -> None:
    (folder / collect.FOLDER).mkdir()
    for host, result in results.items():
        report = {"task": "Run phase 'run'", "result": result}
        (folder / collect.FOLDER / f"failed-{host}.json").write_text(json.dumps(report))


def hypervisor(looks: list[list[str]], **description: Any) -> dict[str, Any]:
    result = collect.hosts({"w": answers(virtualization="lxc", **description)}, {}, looks, "pve")
    return result.hypervisor.model_dump()


def test_cpu_time_of_the_lab_itself_is_known() -> None:
    result = hypervisor(node(), pid_namespace="pid:[5]")
    assert result["lab_cpu_s"] == 4
    assert result["pressure_pct"] == {"memory": 10.0}
    assert hypervisor(node(lab_ticks=0.0), pid_namespace="pid:[5]")["lab_cpu_s"] == 0


def test_cpu_time_of_the_lab_is_unknown_if_the_node_cannot_name_a_containers_processes() -> None:
    assert hypervisor(node(), pid_namespace=None)["lab_cpu_s"] is None
