"""Every role by itself, on a plain Debian host, from a three-line playbook.

The hosts are containers that the lab created and never configured. Their inventory has nothing but the way to
reach them, and Ansible has no settings of this project but the path of the roles.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.paths import ROLES
from minipve.base.paths import Paths
from minipve.image import debs, golden
from minipve.network import namespace

from tests.e2e.conftest import BIN, Bench
from tests.waiting import until

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("lxc-start") is None, reason="no LXC here: apt install lxc"),
]
WAY = ("ansible_host", "ansible_user", "ansible_ssh_private_key_file", "ansible_ssh_common_args")
GUEST = "/opt/dasklab/bin/dasklab-guest"


@dataclass
class Hosts:
    """Plain hosts, and Ansible without this project's settings."""

    folder: Path
    bench: Bench
    names: list[str]
    environment: dict[str, str] = field(default_factory=dict)

    def play(self, text: str, *options: str, good: bool = True) -> str:
        """Run a playbook and return its output."""
        playbook = self.folder / "playbook.yml"
        playbook.write_text(text)
        argv = [str(BIN / "ansible-playbook"), "-i", "hosts.yml", playbook.name, *options]
        process = subprocess.run(
            argv, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        output = process.stdout + process.stderr
        assert (process.returncode == 0) == good, output[-5000:]
        return output

    def apply(self, role: str, host: str, *options: str, good: bool = True, **variables: Any) -> str:
        """Apply a role to a host by the shortest playbook."""
        play = {"hosts": host, "gather_facts": False, "roles": [role], "vars": variables}
        return self.play(yaml.safe_dump([play], sort_keys=False), *options, good=good)

    def converge(self, role: str, host: str, **variables: Any) -> None:
        """Apply a role in check mode, for real, and again; only the second changes anything."""
        self.ssh(host, "rm -rf /opt/dasklab /etc/dasklab /etc/dask")
        output = self.apply(role, host, "--check", "--diff", **variables)
        assert changed(output) > 0, output
        assert self.ssh(host, "ls -d /opt/dasklab /etc/dasklab 2>/dev/null; true") == ""
        assert changed(self.apply(role, host, **variables)) > 0
        output = self.apply(role, host, **variables)
        assert changed(output) == 0, output

    def ssh(self, host: str, command: str) -> str:
        """Run a command on a host and return its output."""
        return self.bench.ssh(host, command)

    def part(self, host: str, part: str, action: str) -> Any:
        """Return the answer of the guest program."""
        return json.loads(self.ssh(host, f"{GUEST} {part} {action}"))


def changed(output: str) -> int:
    """Return how many tasks changed something, from the recap."""
    return sum(int(number) for number in re.findall(r"changed=(\d+)", output))


@pytest.fixture(scope="module")
def hosts(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """The hosts, created by the lab, which keeps nothing on them but a key."""
    bench.good("dasklab", "up", "--guests", "container", "--only", "provision")
    folder = tmp_path_factory.mktemp("alone")
    lab = Inventory(bench.inventory)
    names = lab.hosts("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASKLAB_STATE", bench.environment["DASKLAB_STATE"])  # the inventory looks there
        hosts: Mapping[str, dict[str, Any]] = {
            name: {variable: str(lab.value(name, variable)) for variable in WAY} for name in names
        }
    python = {"ansible_python_interpreter": "/usr/bin/python3"}
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts, "vars": python}}))
    # Labs have the same addresses: their shared connections must not be mixed up.
    connection = f"[ssh_connection]\npipelining = true\ncontrol_path_dir = {folder}/cp\n"
    (folder / "ansible.cfg").write_text(
        f"[defaults]\nroles_path = {ROLES}\ndisplay_skipped_hosts = false\n{connection}"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    yield Hosts(folder, bench, names, {**environment, "ANSIBLE_CONFIG": str(folder / "ansible.cfg")})


def test_base_installs_the_guest_program(hosts: Hosts) -> None:
    hosts.converge("base", "client")
    assert json.loads(hosts.ssh("client", "cat /etc/dasklab/host.json"))["name"] == "client"
    assert "guest program" in hosts.ssh("client", f"{GUEST} --help 2>&1; true")


def test_guest_configures_a_host_without_a_link_under_test(hosts: Hosts) -> None:
    # On a busy machine a command needs longer to start than a wrong clock may be wrong.
    hosts.converge("guest", "scheduler", guest_clock_tolerance_s=120)
    assert "passwordauthentication no" in hosts.ssh("scheduler", "sshd -T")
    assert hosts.ssh("scheduler", "systemctl is-enabled dasklab-host") == "enabled"


def test_netem_impairs_the_named_link(hosts: Hosts) -> None:
    refused = hosts.apply("netem", "worker-1", good=False, netem_links=[{"rate_mbit": 20}])
    assert "the link under test is not named; set lab_interface, lab_mac or lab_address" in refused
    refused = hosts.apply(
        "netem", "worker-1", good=False, lab_interface="eth0", netem_links=[{"rate_mbit": 20}]
    )
    assert "eth0 also carries the management address" in refused
    if "netem" in namespace.missing_impairments():
        for options in (["--check"], []):
            output = hosts.apply(
                "netem", "worker-1", *options, good=False, lab_interface="eth1", netem_links=[{"delay_ms": 5}]
            )
            assert "this kernel has no netem; use virtual machines" in output
    hosts.converge(
        "netem", "worker-1", lab_interface="eth1", netem_links=[{"rate_mbit": 20}], netem_ttl_s=600
    )
    assert [link["rate_mbit"] for link in hosts.part("worker-1", "link", "show")["configured"]] == [20]
    assert changed(hosts.apply("netem", "worker-1", lab_interface="eth1", netem_links=[])) == 1
    assert hosts.part("worker-1", "link", "show")["configured"] == []


def test_probe_measures_every_pair(hosts: Hosts) -> None:
    hosts.converge("probe", "worker-2")
    targets = {"probe_targets": "{{ ansible_play_hosts | difference([inventory_hostname]) }}"}
    short = {"probe_pings": 2, "probe_interval_s": 0.1, "probe_iperf_s": 1}
    output = hosts.apply("probe", "worker-2,worker-3", **targets, **short)
    assert len(re.findall(r'"mbit": \d', output)) == 2, output
    assert len(re.findall(r'"samples_ms": \[\s+\d', output)) == 2, output
    assert hosts.ssh("worker-2", "pgrep -c iperf3; true") == "0"
    refused = hosts.apply("probe", "worker-2", good=False, probe_targets=["nowhere"], **short)
    assert "nowhere cannot be resolved" in refused
    refused = hosts.apply("probe", "worker-2", good=False, probe_targets=["192.0.2.1"], **short)
    assert "nothing was measured to 192.0.2.1" in refused
    assert hosts.ssh("worker-2", "pgrep -c iperf3; true") == "0"


def test_fault_restarts_a_service(hosts: Hosts) -> None:
    hosts.converge("fault", "worker-3")
    hosts.ssh("worker-3", "systemd-run --unit=victim --property=Restart=no sleep 600")
    pid = hosts.ssh("worker-3", "systemctl show -p MainPID --value victim")
    steps = """
        - hosts: worker-3
          gather_facts: false
          tasks:
            - ansible.builtin.import_role: {name: fault, tasks_from: inject}
              vars: {fault_does: kill, fault_service: victim.service}
            - ansible.builtin.pause: {seconds: 1}
            - ansible.builtin.import_role: {name: fault, tasks_from: end}
            - ansible.builtin.debug: {var: fault_effect.state}
    """
    output = hosts.play(textwrap.dedent(steps))
    assert (pid != "0" and '"fault_effect.state": "failed"' in output) or "inactive" in output, output


def test_capture_records_frames(hosts: Hosts) -> None:
    hosts.converge("capture", "client", capture_interface="eth2")
    hosts.ssh("client", "ip link set eth1 up")
    steps = f"""
        - hosts: client
          gather_facts: false
          vars: {{capture_interface: eth1, capture_fetch_to: {hosts.folder}/captures}}
          roles: [capture]
          tasks:
            - ansible.builtin.import_role: {{name: capture, tasks_from: start}}
            - ansible.builtin.command: ping -c 3 -i 0.2 10.77.1.12
            - ansible.builtin.import_role: {{name: capture, tasks_from: stop}}
            - ansible.builtin.debug: {{var: capture_report.frames}}
    """
    output = hosts.play(textwrap.dedent(steps))
    frames = re.search(r'"capture_report.frames": (\d+)', output)
    assert frames and int(frames[1]) >= 6, output
    assert (hosts.folder / "captures" / "client" / "capture.pcap").stat().st_size > 500


def test_dask_runs_a_cluster_from_wheels(hosts: Hosts) -> None:
    """The host loses the packages of its image first; the role installs them from the controller."""
    hosts.ssh("scheduler", "rm -rf /opt/dask /etc/dask-requirements.txt")
    wheelhouse = golden.fetch_wheels(
        replace(Paths.of(), requirements=ROLES / "dask" / "files" / "requirements.txt")
    )
    cluster = {"dask_wheelhouse": str(wheelhouse), "dask_state": "started", "dask_dashboard": False}
    hosts.converge("dask", "scheduler", dask_role="scheduler", **cluster)
    refused = hosts.apply("dask", "worker-1", good=False, dask_role="worker")
    assert "A worker needs dask_scheduler_address" in refused
    hosts.apply("dask", "worker-1", dask_role="worker", dask_scheduler_address="10.77.1.12", **cluster)
    count = "len(Client('10.77.1.12:8786').scheduler_info()['workers'])"
    ask = f'/opt/dask/bin/python -c "from distributed import Client; print({count})"'
    until(lambda: hosts.ssh("scheduler", ask) == "1", "the worker")


def test_profile_samples_a_service(hosts: Hosts, tmp_path: Path) -> None:
    """Needs a package index for py-spy on the controller."""
    argv = [str(BIN / "pip"), "download", "--quiet", "--no-deps", "--dest", str(tmp_path), "py-spy"]
    if subprocess.run(argv, check=False, capture_output=True).returncode:
        pytest.skip("no package index for py-spy")
    hosts.converge("profile", "worker-2", profile_wheelhouse=str(tmp_path))
    busy = "python3 -c 'while True: sum(range(1000))'"
    hosts.ssh("worker-2", f"systemd-run --unit=busy {busy}")
    steps = f"""
        - hosts: worker-2
          gather_facts: false
          vars: {{profile_service: busy.service, profile_fetch_to: {hosts.folder}/profiles}}
          tasks:
            - ansible.builtin.import_role: {{name: profile, tasks_from: start}}
            - ansible.builtin.pause: {{seconds: 2}}
            - ansible.builtin.import_role: {{name: profile, tasks_from: stop}}
            - ansible.builtin.debug: {{var: profile_result}}
    """
    output = hosts.play(textwrap.dedent(steps))
    profile = hosts.folder / "profiles" / "worker-2" / "profile.json"
    assert profile.exists() and "shared" in json.loads(profile.read_text()), output


def test_workload_copies_the_scripts(hosts: Hosts) -> None:
    hosts.converge("workload", "worker-3")
    names = hosts.ssh("worker-3", "ls /opt/dasklab/workloads").split()
    assert {"array_study.py", "_harness.py"} <= set(names)


def test_spark_finds_java(hosts: Hosts) -> None:
    """Java itself is 200 MB: a stand-in shows that a host that has it is left alone."""
    hosts.ssh("worker-3", "printf '#!/bin/sh\\n' >/usr/local/bin/java; chmod +x /usr/local/bin/java")
    hosts.converge("spark", "worker-3")


def test_proxmox_bridge_sets_an_ageing_time(hosts: Hosts) -> None:
    hosts.ssh(
        "worker-1", "ip link add vmbr9 type bridge; printf 'iface vmbr9 inet manual\\n' >/tmp/interfaces"
    )
    bridge = {"proxmox_bridge_name": "vmbr9", "proxmox_bridge_interfaces_file": "/tmp/interfaces"}
    output = hosts.apply("proxmox_bridge", "worker-1", "--check", "--diff", **bridge)
    assert "bridge-ageing 0" in output
    assert changed(hosts.apply("proxmox_bridge", "worker-1", **bridge)) == 2
    assert changed(hosts.apply("proxmox_bridge", "worker-1", **bridge)) == 0
    assert "ageing_time 0 " in hosts.ssh("worker-1", "ip -d link show vmbr9")


def test_proxmox_endpoint_runs_the_commands(hosts: Hosts) -> None:
    commands = {"proxmox_endpoint_start": ["echo", "started"]}
    assert changed(hosts.apply("proxmox_endpoint", "localhost", **commands)) == 1
    assert changed(hosts.apply("proxmox_endpoint", "localhost")) == 0


def test_role_works_for_a_user_with_sudo(hosts: Hosts, tmp_path: Path) -> None:
    """Check mode on a bare host, the role, and a second run, by the example of the README."""
    status = tmp_path / "status"
    status.write_text(hosts.ssh("worker-3", "cat /var/lib/dpkg/status") + "\n")
    archive = debs.fetch(status, ["sudo"])
    hosts.play(
        textwrap.dedent(f"""
        - hosts: worker-3
          gather_facts: false
          tasks:
            - ansible.builtin.unarchive: {{src: {archive}, dest: /tmp}}
            - ansible.builtin.shell: |
                dpkg --install /tmp/sudo_*.deb && rm /tmp/*.deb
                # Without PAM, sshd refuses keys of an account that is locked, as useradd leaves it.
                useradd --create-home --shell /bin/bash --password '*' debian
                echo 'debian ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/debian
                cp --recursive /root/.ssh /home/debian/ && chown --recursive debian: /home/debian/.ssh
                rm -rf /opt/dasklab /etc/dasklab
    """)
    )
    play = """
        - hosts: worker-3
          become: true
          gather_facts: false
          roles: [netem]
          vars: {ansible_user: debian, lab_interface: eth1, netem_links: [{rate_mbit: 20}]}
    """
    output = hosts.play(textwrap.dedent(play), "--check", "--diff")
    assert changed(output) > 0
    assert len(output.splitlines()) <= 60, output
    assert hosts.ssh("worker-3", "ls -d /opt/dasklab /etc/dasklab 2>/dev/null; true") == ""
    assert changed(hosts.play(textwrap.dedent(play))) > 0
    assert changed(hosts.play(textwrap.dedent(play))) == 0
    assert [link["rate_mbit"] for link in hosts.part("worker-3", "link", "show")["configured"]] == [20]


def test_missing_package_is_reported_in_check_mode(hosts: Hosts) -> None:
    hosts.ssh("worker-2", "dpkg --purge --force-depends iperf3 >/dev/null")
    assert "Would install what is missing of iperf3" in hosts.apply("probe", "worker-2", "--check")
