"""Ansible itself on the variables and the check-mode tasks of roles, on this machine and without a lab."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dasklab.paths import ROLES

HOSTS = {
    "h1": {"ansible_host": "192.0.2.1"},
    "h2": {"ansible_host": "192.0.2.2", "lab_address": "198.51.100.2"},
    "h3": {},
}
PROBE = {
    "probe_pings": 1,
    "probe_interval_s": 1,
    "probe_iperf_runs": 1,
    "probe_iperf_s": 1,
    "probe_udp": False,
}


def play(
    folder: Path, role: str, tasks: list[dict[str, Any]], **variables: Any
) -> subprocess.CompletedProcess[str]:
    """Run tasks on h1 in check mode with a role's variables; every host is this machine."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": HOSTS, "vars": local}}))
    book = {
        "hosts": "h1",
        "gather_facts": False,
        "vars": variables,
        "vars_files": [str(ROLES / role / "vars" / "main.yml")],
        "tasks": tasks,
    }
    (folder / "play.json").write_text(json.dumps([book]))
    (folder / "ansible.cfg").write_text(f"[defaults]\nfilter_plugins = {ROLES / role / 'filter_plugins'}\n")
    program = Path(sys.executable).with_name("ansible-playbook")
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": f"{folder}/ansible.cfg",
        "PATH": f"{folder}:{os.environ['PATH']}",
    }
    return subprocess.run(
        [program, "-i", "hosts.json", "play.json", "--check"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_probe_knows_the_addresses_of_inventory_names(tmp_path: Path) -> None:
    """The example of the role's README, on hosts that do not resolve each other's names."""
    copy = {"content": "{{ probe_rtt_request | to_json }}", "dest": f"{tmp_path}/request", "mode": "0644"}
    tasks = [{"ansible.builtin.copy": copy, "check_mode": False}]
    targets = "{{ groups['all'] | difference([inventory_hostname]) + ['10.0.0.1'] }}"
    process = play(tmp_path, "probe", tasks, probe_targets=targets, **PROBE)
    assert process.returncode == 0, process.stdout
    request = json.loads((tmp_path / "request").read_text())
    assert sorted(request["to"]) == ["10.0.0.1", "h2", "h3"]
    assert request["addresses"] == {"h2": "198.51.100.2"}


@pytest.mark.parametrize(
    ("links", "needed"),
    [
        ([{"delay_ms": 5}], True),
        ([{"rate_mbit": 5, "policer": True, "peer": "h2"}], False),
        ([], False),
        (None, False),
    ],
)
def test_links_that_need_netem_are_recognised(tmp_path: Path, links: Any, needed: bool) -> None:
    tasks = [{"ansible.builtin.assert": {"that": f"(netem_links | needs_netem) == {str(needed).lower()}"}}]
    process = play(tmp_path, "netem", tasks, netem_links=links)
    assert process.returncode == 0, process.stdout


@pytest.mark.parametrize(
    ("script", "refused"),
    [
        ("echo 'Error: Specified qdisc kind is unknown.' >&2; exit 2", True),
        ("echo 'unshare: failed to execute tc: No such file or directory' >&2; exit 127", False),
        ("exit 0", False),
    ],
)
def test_check_mode_on_a_bare_host_refuses_a_kernel_without_netem(
    tmp_path: Path, script: str, refused: bool
) -> None:
    (tmp_path / "unshare").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "unshare").chmod(0o755)
    tasks = [{"ansible.builtin.import_tasks": str(ROLES / "netem" / "tasks" / "kernel.yml")}]
    process = play(tmp_path, "netem", tasks)
    assert (process.returncode != 0) == refused, process.stdout
    assert ("this kernel has no netem; use virtual machines" in process.stdout) == refused


RTT = [{"dst": "h2", "samples_ms": [0.3]}, {"dst": "h3", "samples_ms": []}]


@pytest.mark.parametrize("answers", [True, False])
def test_probe_fails_for_a_target_to_which_nothing_was_measured(tmp_path: Path, answers: bool) -> None:
    throughput = {
        "throughput": [{"dst": "h3", "mbit": 1.0}] if answers else [],
        "errors": [] if answers else [{"dst": "h3", "error": "unable to connect to server"}],
    }
    tasks = [{"ansible.builtin.assert": {"that": "probe_targets | probe_measured(rtt, throughput)"}}]
    process = play(tmp_path, "probe", tasks, probe_targets=["h2", "h3"], rtt=RTT, throughput=throughput)
    assert (process.returncode == 0) == answers, process.stdout
    assert ("nothing was measured to h3: unable to connect to server" in process.stdout) == (not answers)
