"""The collection, built from the checkout and installed into an empty folder, offline."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from dasklab.machines.inventory.ansible_inventory import DEFAULT
from dasklab.paths import ROLES
from dasklab.paths import SHARE as ROOT

from tests.e2e.conftest import BIN

NAME = "dasklab.lab"
NAMES = {
    "module": ["guest_program", "proxmox_vm"],
    "filter": [
        "bridge_ageing",
        "bridge_state",
        "dasklab_file",
        "lab_image",
        "lab_machine",
        "lab_machines",
        "lab_processes",
        "lab_ssh_sockets",
        "lab_status",
        "lab_status_rows",
        "needs_netem",
        "probe_addresses",
        "probe_measured",
    ],
    "callback": ["dasklab", "lab_lock"],
    "strategy": ["mitogen_or_linear"],
}
PLAY = """
- hosts: localhost
  gather_facts: false
  roles: [dasklab.lab.proxmox_endpoint]
  vars: {proxmox_endpoint_start: [echo, started]}
  tasks:
    - ansible.builtin.debug: {msg: "{{ 'workloads' | dasklab.lab.dasklab_file }}"}
"""


@dataclass(frozen=True)
class Installed:
    """An empty folder with the collection, and Ansible's commands there."""

    folder: Path

    def run(self, *argv: str) -> str:
        """Run a command that must succeed and return its output."""
        process = subprocess.run(
            [str(BIN / argv[0]), *argv[1:]],
            cwd=self.folder,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
                "ANSIBLE_COLLECTIONS_PATH": str(self.folder),
                "ANSIBLE_STRATEGY": f"{NAME}.mitogen_or_linear",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
        return process.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    subprocess.run([BIN / "python", "collection/build.py"], cwd=ROOT, check=True, capture_output=True)
    [archive] = (ROOT / "build").glob("dasklab-lab-*.tar.gz")
    collection = Installed(tmp_path_factory.mktemp("collection"))
    collection.run("ansible-galaxy", "collection", "install", str(archive), "-p", ".", "--offline")
    return collection


def test_ansible_doc_explains_every_role(installed: Installed) -> None:
    documents = json.loads(installed.run("ansible-doc", "-t", "role", "--json", "--metadata-dump", NAME))
    roles = {name.removeprefix(f"{NAME}."): document for name, document in documents["all"]["role"].items()}
    assert set(roles) == {path.name for path in ROLES.iterdir()}
    assert [name for name, document in roles.items() if "main" not in document["entry_points"]] == []


@pytest.mark.parametrize("kind", NAMES)
def test_ansible_doc_explains_every_plugin(installed: Installed, kind: str) -> None:
    names = [f"{NAME}.{name}" for name in NAMES[kind]]
    documents = json.loads(installed.run("ansible-doc", "-t", kind, "--json", *names))
    assert [name for name in names if not documents[name]["doc"]["description"]] == []
    listed = json.loads(installed.run("ansible-doc", "-t", kind, "--list", "--json", NAME))
    assert sorted(listed) == names


def test_a_role_and_a_filter_run_by_their_full_names(installed: Installed) -> None:
    (installed.folder / "play.yml").write_text(PLAY)
    output = installed.run("ansible-playbook", "play.yml")
    assert "changed=1" in output and "/dasklab/workloads" in output


def test_playbooks_are_found_by_their_full_names(installed: Installed) -> None:
    names = [f"{NAME}.{path.stem}" for path in sorted((ROOT / "playbooks").glob("*.yml"))]
    output = installed.run("ansible-playbook", "-i", str(DEFAULT), "--syntax-check", *names)
    assert output.count("playbook: ") == len(names) >= 10
