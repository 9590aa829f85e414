"""Clients other than proxmoxer: curl, and the modules and the inventory plugin of community.proxmox."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Allow
from tests.contract.endpoint import Endpoint
from tests.waiting import PATIENCE_S

BIN = Path(sys.executable).parent


def test_curl(endpoint: Endpoint) -> None:
    trust = ["--cacert", str(endpoint.ca_file)] if endpoint.ca_file is not True else []
    header = f"Authorization: {endpoint.token['Authorization']}"
    words = ["curl", "--silent", "--show-error", "--fail", *trust, "-H", header, f"{endpoint.url}/version"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert json.loads(said)["data"]["version"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the project's ansible.cfg, which these clients do not use: an earlier test may have named it."""
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def _ansible(endpoint: Endpoint, command: str, *words: str) -> str:
    environment = os.environ | {"ANSIBLE_INVENTORY_UNPARSED_FAILED": "1"}
    if isinstance(endpoint.ca_file, str):
        environment["REQUESTS_CA_BUNDLE"] = endpoint.ca_file
    program = BIN / command
    if not program.exists():
        pytest.skip(f"{command} is not installed beside {sys.executable}")
    done = subprocess.run(
        [program, *words], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _module(endpoint: Endpoint, name: str, /, **options: Any) -> dict[str, Any]:
    access = {
        "api_host": endpoint.host,
        "api_port": endpoint.port,
        "api_user": endpoint.user,
        "api_token_id": endpoint.token_id,
        "api_token_secret": endpoint.token_secret,
        "validate_certs": True,
    }
    local = ["-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
    arguments = json.dumps(access | options)
    said = _ansible(
        endpoint, "ansible", "localhost", *local, "-m", f"community.proxmox.{name}", "-a", arguments
    )
    answer: dict[str, Any] = json.loads(said.partition("=>")[2])
    return answer


def test_community_proxmox_creates_and_lists_a_vm(endpoint: Endpoint, vmid: int, tmp_path: Path) -> None:
    nic = {"net0": f"virtio,bridge={endpoint.bridge}"}
    options = {
        "vmid": vmid,
        "name": "byansible",
        "node": endpoint.node,
        "pool": endpoint.pool,
        "memory": 32,
        "net": nic,
    }
    made = _module(endpoint, "proxmox_kvm", state="present", **options)
    assert made["changed"]
    assert made["mac"]["net0"] in endpoint.vm(vmid).config.get()["net0"]
    assert not _module(endpoint, "proxmox_kvm", state="present", **options)["changed"]
    inventory = tmp_path / "dasklab.machines.endpoint.proxmox.yml"
    settings = {
        "plugin": "community.proxmox.proxmox",
        "url": f"https://{endpoint.host}:{endpoint.port}",
        "user": endpoint.user,
        "token_id": endpoint.token_id,
        "token_secret": endpoint.token_secret,
        "validate_certs": True,
        "want_facts": True,
    }
    inventory.write_text(json.dumps(settings))
    listed = json.loads(_ansible(endpoint, "ansible-inventory", "-i", str(inventory), "--list"))
    assert "byansible" in listed["proxmox_all_qemu"]["hosts"]
    assert listed["_meta"]["hostvars"]["byansible"]["proxmox_vmid"] == vmid


def test_community_proxmox_creates_snapshots(endpoint: Endpoint, vmid: int, disks: str, allow: Allow) -> None:
    allow("VM.Snapshot", "VM.Snapshot.Rollback")
    endpoint.create(vmid, scsi0=f"{disks}:1,format=qcow2")

    def snap(state: str) -> bool:
        changed: bool = _module(endpoint, "proxmox_snap", vmid=vmid, snapname="pre", state=state)["changed"]
        return changed

    assert snap("present")
    assert not snap("present")
    assert snap("rollback")
    assert snap("absent")
    assert [row["name"] for row in endpoint.vm(vmid).snapshot.get()] == ["current"]
