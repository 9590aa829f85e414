"""A lab without machines: the real playbooks on local connections, with a guest program that only answers.

Each host has a folder with its own guest program. It notes every step that it is ordered to take, and answers
what is in ``answers.json``. Requests to the endpoint are noted as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from dasklab.model.experiments.order import LabHost, Orders
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.paths import SHARE as ROOT
from dasklab.results.storage import documents
from dasklab.running.playbooks.orders import orders
from dasklab.running.playbooks.playbook import command

HOSTS = ("client", "scheduler", "worker-1", "worker-2", "worker-3")
ROLES = {name: name.partition("-")[0] for name in HOSTS}
ADDRESSES = {name: f"10.9.0.{number}" for number, name in enumerate(HOSTS, start=11)}
TEMPLATES = ("{{ 1+1 }}", "{% raw %}", "{#", "!unsafe a", "{{ lookup('pipe', 'touch executed') }}")
"""Texts that Ansible would evaluate, refuse or shorten if it took them for templates."""

DESCRIPTION = {
    "name": "eth1",
    "time": 5,
    "cpu": {"user_s": 1},
    "pid_namespace": None,
    "tcp": {"OutSegs": 1},
    "softnet_dropped": 0,
    "congestion_control": "cubic",
    "lab": {"name": "eth1", "driver": "veth", "mtu": 1500, "offloads": {}, "statistics": {"rx_bytes": 5}},
    "capture": None,
    "qdiscs": [],
    "virtualization": "lxc",
    "kernel": "6.1",
    "os": "Debian",
    "cpus": 1,
    "memory_mb": 1024,
    "versions": {},
    "clock_offset_s": 0.1,
}
SAMPLE = {
    "repeat": 0,
    "warmup": False,
    "start": 1,
    "stop": 2,
    "duration_s": 0.1234567890123456789,
    "answer": 1e-7,
    "ok": True,
}
TIMINGS = {
    "schema": 4,
    "workload": "array_study",
    "params": {},
    "tasks": None,
    "samples": [SAMPLE],
    "check": {"expected": 1, "answer": 1, "tolerance": 0, "ok": True},
    "cluster": {"workers": 3, "threads": 3, "addresses": {}},
    "versions": {},
}
CAPTURE = {
    "interface": "eth2",
    "driver": "veth",
    "promiscuity": 1,
    "start": 1,
    "stop": 2,
    "expired": False,
    "snaplen": 512,
    "filter": "host 10.9.0.12",
    "frames": 0,
    "dropped_kernel": 0,
    "dropped_interface": 0,
    "left_behind": 0,
    "softnet_dropped": 0,
    "nic_statistics": {},
    "tiers": [],
}
ANSWERS: dict[str, Any] = {
    "host.describe": DESCRIPTION,
    "host.counters": DESCRIPTION,
    "link.apply": {"configured": []},
    "probe.rtt": {"rtt": []},
    "probe.throughput": {"throughput": [], "errors": []},
    "fault.end": {"at_s": 2.0, "lasted_s": None, "state": "failed"},
    "capture.stop": CAPTURE,
    "workload.run": TIMINGS,
}
PROGRAM = """#!{python}
import json, shutil, sys
from pathlib import Path

here = Path({folder!r})
results = here / "trial"
answers = json.loads((here / "answers.json").read_text())

def take(do, arguments):
    with (here / "steps").open("a") as notes:
        notes.write(json.dumps([do, arguments]) + "\\n")
    answer = answers.get(do, {{}})
    if "fails" in answer:
        print(answer["fails"], file=sys.stderr)
        sys.exit(answer["status"])
    if do == "workload.run":
        (results / arguments.get("output", "timings.json")).write_text(json.dumps(answer))
        if "record" in arguments:
            (results / arguments["record"]).mkdir()
            (results / arguments["record"] / "record.json").write_text("{{}}")
    return answer

def carry_out(order):
    if order["first"]:
        shutil.rmtree(results)
        results.mkdir()
    phase = {{step["do"]: take(step["do"], step["arguments"]) for step in order["steps"]}}
    kept = results / "answers.json"
    phases = json.loads(kept.read_text()) if kept.exists() else {{}}
    kept.write_text(json.dumps({{**phases, order["phase"]: phase}}))
    return phase

command = sys.argv[1]
if command == "carry-out":
    answer = carry_out(json.load(sys.stdin))
elif command == "files":
    files = [path for path in results.rglob("*") if path.is_file()]
    answer = {{"folder": str(results), "files": [str(path.relative_to(results)) for path in files]}}
else:
    answer = take(command, {{}})
print(json.dumps(answer))
"""
ACTION = """
import json
from pathlib import Path
from ansible.plugins.action import ActionBase
class ActionModule(ActionBase):
    _requires_connection = False
    def run(self, tmp=None, task_vars=None):
        request = {name: self._task.args[name] for name in ("nics", "guests", "state")}
        with open(@FOLDER@ + "/requests", "a") as file:
            file.write(json.dumps(request) + "\\n")
        result = Path(@FOLDER@, "result.json")
        changes = json.loads(result.read_text()) if result.exists() else {"created": [], "starting": []}
        return {"changed": False, "calls": [], "guests": {}, **changes}
"""
GUEST_ACTION = """
import subprocess
class ActionModule(ActionModule):
    def on_host(self, arguments, task_vars):
        program = @FOLDER@ + "/" + task_vars["inventory_hostname"] + "/dasklab-guest"
        argv, order = [program, arguments["action"]], arguments.get("order")
        done = subprocess.run(argv, input=order, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"failed": True, "msg": done.stderr.strip()}
        return {"changed": argv[1] == "carry-out", "answer": json.loads(done.stdout)}
"""
CONFIGURE = """
- hosts: "{{ configure_hosts }}"
  gather_facts: false
  tasks:
    - name: Configure this host
      ansible.builtin.debug: {msg: "configures {{ inventory_hostname }}"}
"""


@dataclass
class DryLab:
    """Playbooks, roles and hosts in a folder."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> DryLab:
        """Copy the playbooks and create the hosts."""
        for name in ("playbooks", "roles"):
            shutil.copytree(ROOT / name, folder / name)
        shutil.copy(ROOT / "ansible.cfg", folder)
        action = folder / "roles" / "proxmox_vm" / "action_plugins" / "proxmox_vm.py"
        action.write_text(ACTION.replace("@FOLDER@", repr(str(folder))))
        guest_action = folder / "playbooks" / "action_plugins" / "guest_program.py"
        guest_action.write_text(
            guest_action.read_text() + GUEST_ACTION.replace("@FOLDER@", repr(str(folder)))
        )
        (folder / "playbooks" / "configure.yml").write_text(CONFIGURE)
        for host in HOSTS:
            program = PROGRAM.format(python=sys.executable, folder=str(folder / host))
            executable(folder / host / "dasklab-guest", program)
            (folder / host / "trial").mkdir()
            (folder / host / "answers.json").write_text(json.dumps(ANSWERS))
        (folder / "hosts.yml").write_text(yaml.safe_dump(inventory(folder)))
        return cls(folder)

    @property
    def trial(self) -> Path:
        """The trial's folder."""
        return self.folder / "results"

    def request(self, trial: RequestedTrial) -> None:
        """Write a trial and its orders."""
        (self.trial / "collected").mkdir(parents=True, exist_ok=True)
        documents.write(self.trial, trial)
        hosts = {
            name: LabHost.model_validate(
                {"role": ROLES[name], "address": address, "scheduler_address": ADDRESSES["scheduler"]}
            )
            for name, address in ADDRESSES.items()
        }
        documents.write(self.trial, Orders(trial=orders(trial, hosts)))

    def fail(self, host: str, step: str, message: str, status: int = 1) -> None:
        """Let a step of a host fail."""
        answers = {**ANSWERS, step: {"fails": message, "status": status}}
        (self.folder / host / "answers.json").write_text(json.dumps(answers))

    def play(self, playbook: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run a playbook."""
        settings = {
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "DASKLAB_CACHE": str(self.folder),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "true",  # as over ssh: a module is one process, without temporary files
        }
        program = Path(sys.executable).with_name("ansible-playbook")
        return subprocess.run(
            [str(program), "-i", "hosts.yml", f"playbooks/{playbook}", *options],
            env={**os.environ, **settings},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def play_trial(self) -> subprocess.CompletedProcess[str]:
        """Run the playbook of a trial with the variables of `dasklab run`."""
        return self.play("trial.yml", *command("", Path(), {"trial_directory": str(self.trial)})[-2:])

    def steps(self, host: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the steps that a host took, with their arguments."""
        notes = self.folder / host / "steps"
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [(do, arguments) for do, arguments in map(json.loads, lines)]

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests to the endpoint."""
        return [json.loads(line) for line in (self.folder / "requests").read_text().splitlines()]


def inventory(folder: Path) -> dict[str, Any]:
    """Return the inventory of a dry lab. Its machines come from an endpoint, without a hypervisor."""
    roles = {"dask_client": "client", "dask_scheduler": "scheduler", "dask_workers": "worker"}
    groups = {
        group: {
            "vars": {"dask_role": role},
            "hosts": {
                host: {"lab_address": address} for host, address in ADDRESSES.items() if ROLES[host] == role
            },
        }
        for group, role in roles.items()
    }
    variables = {"ansible_connection": "local", "scheduler_address": ADDRESSES["scheduler"]}
    variables["ansible_python_interpreter"] = sys.executable
    shared = {
        "lab_name": "dry",
        "lab_first_vmid": 9100,
        "lab_management_bridge": "vmbr0",
        "lab_management_subnet": "10.8.0",
        "lab_bridge": "vmbr1",
        "lab_subnet": "10.9.0",
        "lab_nic_model": "virtio",
        "vm_cores": 1,
        "vm_memory_mb": 64,
        "lab_ssh_key": f"{folder}/ssh/key",
        "proxmox": {
            "host": f"node of {folder}",  # two dry labs are two labs, each with a lock of its own
            "user": "u",
            "token_id": "t",
            "token_secret": "s",
            "node": "n",
            "pool": "p",
            "storage": "l",
            "image_storage": "l",
        },
        "proxmox_image": {"file": "i"},
    }
    return {"all": {"vars": shared, "children": {"lab": {"children": groups, "vars": variables}}}}


def executable(path: Path, text: str) -> None:
    """Write a script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
