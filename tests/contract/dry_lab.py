"""Hosts that are none: the real playbooks on local connections, with programs that only answer.

Each host has a folder of its own for the lab's programs; they note how they were called, and say what is in a
file. Of the machines only what is asked of the endpoint is noted.
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
from dasklab.paths import SHARE as ROOT

HOSTS = ("client", "scheduler", "worker-1", "worker-2", "worker-3")
TRIAL = {
    "guests": {},
    "nics": {"worker-1": {"model": "virtio", "rate_mbit": 50}},
    "links": {"worker-1": {"delay_ms": 5}},
    "tested": ["worker-1"],
    "workers": 3,
    "bridge": "learning",
    "capture": True,
    "captured_runs": 2,
    "runs": 2,
    "warmups": 1,
    "ttl_s": 60,
    "dask": {"distributed": {"comm": {"compression": "lz4"}}},
    "resolved_scheduler": {
        "variant": "random",
        "command": None,
        "settings": {"distributed": {"scheduler": {"work-stealing": False}}},
        "preload": "random",
    },
    "worker": {"variant": "dask"},
    "layout": "2x1",
    "faults": [],
    "engine": "dask",
    "spark": {},
    "packages": {},
    "environment": {},
    "performance_report": False,
    "py_spy": False,
    "workload": {"name": "array_study", "params": {}},
    "probes": {"pings": 5, "interval_s": 0.2, "iperf_runs": 1, "iperf_s": 1, "udp": False},
}
SEEN = {
    "schema": 1,
    "time": 5,
    "cpu": {"user_s": 1},
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
    "run": 0,
    "warmup": False,
    "start": 1,
    "stop": 2,
    "duration_s": 0.1234567890123456789,
    "answer": 1e-7,
}
TIMINGS = {
    "schema": 3,
    "workload": "array_study",
    "params": {},
    "tasks": None,
    "samples": [{**SAMPLE, "ok": True}],
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
    "dasklab_host.py describe": SEEN,
    "dasklab_host.py show": SEEN,
    "dasklab_link.py apply": {"asked": [], "configured": []},
    "dasklab_probe.py rtt": {"rtt": []},
    "dasklab_probe.py throughput": {"throughput": [], "errors": []},
    "dasklab_fault.py arm": {},
    "dasklab_fault.py end": {"at_s": 2.0, "lasted_s": None, "state": "failed"},
    "dasklab_capture.py start": {},
    "dasklab_capture.py stop": CAPTURE,
    "dasklab_forkserver.py array_study.py": TIMINGS,
    "python _spark_join.py": TIMINGS,
}
PROGRAM = """#!/bin/sh
here=@FOLDER@
name="${0##*/} ${1##*/}"
echo "$name" >> "$here/calls"
echo "$*" >> "$here/words"
cat "$here/answers/$name" 2>/dev/null
exit $(cat "$here/answers/$name.status" 2>/dev/null || echo 0)
"""
ACTION = """
import json
from pathlib import Path
from ansible.plugins.action import ActionBase
class ActionModule(ActionBase):
    _requires_connection = False
    def run(self, tmp=None, task_vars=None):
        notes = {name: self._task.args[name] for name in ("nics", "guests", "state")}
        with open(@FOLDER@ + "/asked", "a") as file:
            file.write(json.dumps(notes) + "\\n")
        done = Path(@FOLDER@, "done")
        told = json.loads(done.read_text()) if done.exists() else {"created": [], "started": []}
        return {"changed": False, "calls": [], "guests": {}, **told}
"""


@dataclass
class DryLab:
    """Playbooks, roles and hosts in a folder."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> DryLab:
        """Copy the playbooks and set the hosts up."""
        for name in ("playbooks", "roles"):
            shutil.copytree(ROOT / name, folder / name)
        shutil.copy(ROOT / "ansible.cfg", folder)
        action = folder / "roles" / "proxmox_vm" / "action_plugins" / "proxmox_vm.py"
        action.write_text(ACTION.replace("@FOLDER@", repr(str(folder))))
        lab = cls(folder)
        for host in HOSTS:
            lab._make_host(folder / host)
        executable(folder / "bin" / "systemctl", "#!/bin/sh\nexit 0\n")
        executable(folder / "bin" / "systemd-run", f'#!/bin/sh\necho "$*" >>{folder}/units\n')
        (folder / "hosts.yml").write_text(yaml.safe_dump(lab._inventory()))
        lab.ask(TRIAL)
        return lab

    @property
    def trial(self) -> Path:
        """The trial's directory."""
        return self.folder / "trial"

    def ask(self, trial: dict[str, Any]) -> None:
        """Write what the trial is to be."""
        self.trial.mkdir(exist_ok=True)
        (self.trial / "trial.json").write_text(json.dumps(trial))

    def say(self, host: str, call: str, answer: str, status: int = 0) -> None:
        """Let a host's program give another answer."""
        (self.folder / host / "answers" / call).write_text(answer)
        (self.folder / host / "answers" / f"{call}.status").write_text(str(status))

    def play(self, playbook: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run a playbook."""
        settings = {"ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"), "DASKLAB_CACHE": str(self.folder)}
        settings["ANSIBLE_PIPELINING"] = (
            "true"  # as over ssh: a module is one process, without files of its own
        )
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        program = Path(sys.executable).with_name("ansible-playbook")
        argv = [str(program), "-i", "hosts.yml", f"playbooks/{playbook}", *options]
        environment = {**os.environ, **settings, "PATH": path, "ANSIBLE_NOCOLOR": "1"}
        return subprocess.run(
            [*argv, "-e", f"trial_directory={self.trial}"],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def give_java(self) -> None:
        """Let there be Java, and each host have Spark's programs."""
        executable(self.folder / "bin" / "java", "#!/bin/sh\n")
        for host in HOSTS:
            self.spark(host).mkdir(parents=True)

    def spark(self, host: str) -> Path:
        """Where a host has pyspark."""
        return self.folder / host / "dask" / "lib" / "python3.11" / "site-packages" / "pyspark"

    def units(self) -> list[str]:
        """How transient units were started, on any host."""
        notes = self.folder / "units"
        return notes.read_text().splitlines() if notes.exists() else []

    def calls(self, host: str) -> list[str]:
        """How a host's programs were called, in their order."""
        notes = self.folder / host / "calls"
        return notes.read_text().splitlines() if notes.exists() else []

    def asked(self) -> list[dict[str, Any]]:
        """What was asked of the endpoint, in its order."""
        return [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]

    def written(self, name: str) -> Any:
        """One of the trial's files."""
        return json.loads((self.trial / name).read_text())

    def _make_host(self, folder: Path) -> None:
        program = PROGRAM.replace("@FOLDER@", str(folder))
        for call, answer in ANSWERS.items():
            executable(folder / "bin" / call.split()[0], program)
            (folder / "answers").mkdir(exist_ok=True)
            (folder / "answers" / call).write_text(json.dumps(answer))
        executable(folder / "dask" / "bin" / "python", program)
        executable(folder / "reset.d" / "all", program)

    def _inventory(self) -> dict[str, Any]:
        roles = {"dask_client": "client", "dask_scheduler": "scheduler", "dask_workers": "worker"}
        groups = {
            group: {
                "vars": {"dask_role": role},
                "hosts": {
                    host: {"lab_address": f"10.9.0.{11 + place}"}
                    for place, host in enumerate(HOSTS)
                    if host.startswith(role)
                },
            }
            for group, role in roles.items()
        }
        here = f"{self.folder}/{{{{ inventory_hostname }}}}"
        variables = {
            "ansible_connection": "local",
            "base_directory": here,
            "base_dask": f"{here}/dask",
            "spark_directory": f"{here}/spark",
            "base_dask_settings": f"{here}/run/dask",
            "workload_log": f"{here}/workload.log",
            "scheduler_address": "10.9.0.12",
            "profile_path": f"{here}/profile/profile-{{{{ inventory_hostname }}}}",
        }
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
            "lab_ssh_key": f"{self.folder}/ssh/key",
            "proxmox": {
                "host": f"node of {self.folder}",  # two dry labs are two labs, each with a lock of its own
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
