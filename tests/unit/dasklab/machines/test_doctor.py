"""Doctor on the example of a real Proxmox VE: what the environment must say, and ssh to the node."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dasklab.machines import doctor
from dasklab.machines.inventory import DEFAULT, Inventory
from dasklab.machines.preflight import Finding

EXAMPLES = DEFAULT.parent / "examples"


@pytest.fixture
def proxmox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Inventory]:
    """The example, with a node where nothing listens."""
    said = {"HOST": "127.0.0.1", "USER": "lab@pve", "TOKEN_ID": "dasklab", "TOKEN_SECRET": "s", "CA_FILE": ""}
    for name, value in said.items():
        monkeypatch.setenv(f"PROXMOX_{name}", value)
    yield Inventory(EXAMPLES / "proxmox" / "hosts.yml")


def ssh_that(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an ``ssh`` first in the path that writes down its words and does this."""
    program = folder / "ssh"
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/words\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder / "words"


def last(inventory: Inventory) -> Finding:
    return list(doctor.examine(inventory))[-1]


def test_roots_ssh_to_the_node_is_tried_without_asking(
    proxmox: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ssh_that(tmp_path, "exit 0", monkeypatch)
    finding = last(proxmox)
    assert finding.ok
    assert finding.text.startswith("root@127.0.0.1: ssh works")
    assert "BatchMode=yes" in words.read_text()


def test_a_node_that_lets_nobody_in_is_said_with_why_it_matters_and_what_else_one_can_do(
    proxmox: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh_that(tmp_path, "echo 'root@node: Permission denied (publickey).' >&2; exit 255", monkeypatch)
    finding = last(proxmox)
    assert not finding.ok
    assert "Permission denied (publickey)" in finding.text
    assert "ageing time, which the API cannot" in finding.text
    assert finding.fix[0] == "ssh-copy-id root@127.0.0.1"
    assert "proxmox.node" in "".join(finding.fix)


def test_the_embedded_node_needs_no_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ssh_that(tmp_path, "exit 1", monkeypatch)
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path))
    list(doctor.examine(Inventory()))
    assert not words.exists()


def test_without_ssh_to_the_node_the_lab_is_still_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alternative that doctor tells: no host in the group, the node's name at proxmox.node."""
    shutil.copytree(EXAMPLES / "proxmox", tmp_path / "lab")
    hosts, settings = tmp_path / "lab" / "hosts.yml", tmp_path / "lab" / "group_vars" / "all.yml"
    lines = hosts.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("          ansible_") and "pve:" not in line]
    hosts.write_text("".join(kept))
    settings.write_text(settings.read_text().replace("\"{{ groups['hypervisors'] | first }}\"", "node-one"))
    inventory = Inventory(hosts)
    assert inventory.hosts("hypervisors") == []
    assert inventory.value("worker-1", "guest")["node"] == "node-one"
    for name in ("HOST", "USER", "TOKEN_ID", "TOKEN_SECRET", "CA_FILE"):
        monkeypatch.delenv(f"PROXMOX_{name}", raising=False)
    assert "PROXMOX_HOST" in last(inventory).text


def test_all_that_the_environment_lacks_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOST", "USER", "TOKEN_ID", "TOKEN_SECRET", "CA_FILE"):
        monkeypatch.delenv(f"PROXMOX_{name}", raising=False)
    finding = last(Inventory(EXAMPLES / "proxmox" / "hosts.yml"))
    for name in ("PROXMOX_HOST", "PROXMOX_USER", "PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET"):
        assert name in finding.text
    assert "pveum user token add lab@pve dasklab" in "\n".join(finding.fix)
