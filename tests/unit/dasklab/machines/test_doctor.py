"""``dasklab doctor`` on the example of a real Proxmox VE: settings, and ssh to the node."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dasklab.machines import doctor
from dasklab.machines.endpoint.preflight import Finding
from dasklab.machines.inventory.ansible_inventory import DEFAULT, Inventory

EXAMPLES = DEFAULT.parent / "examples"


@pytest.fixture
def proxmox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Inventory]:
    """The example, with an address where nothing listens."""
    settings = {
        "HOST": "127.0.0.1",
        "USER": "lab@pve",
        "TOKEN_ID": "dasklab",
        "TOKEN_SECRET": "s",
        "CA_FILE": "",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"PROXMOX_{name}", value)
    yield Inventory(EXAMPLES / "proxmox" / "hosts.yml")


def fake_ssh(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install an ``ssh`` that records its arguments and runs ``script``."""
    program = folder / "ssh"
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/words\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder / "words"


def last(inventory: Inventory) -> Finding:
    return list(doctor.examine(inventory))[-1]


def test_ssh_to_the_node_is_checked_without_prompts(
    proxmox: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = fake_ssh(tmp_path, "exit 0", monkeypatch)
    finding = last(proxmox)
    assert finding.ok
    assert finding.text.startswith("root@127.0.0.1: ssh works")
    assert "BatchMode=yes" in words.read_text()


def test_refused_ssh_is_reported_with_purpose_and_alternative(
    proxmox: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, "echo 'root@node: Permission denied (publickey).' >&2; exit 255", monkeypatch)
    finding = last(proxmox)
    assert not finding.ok
    assert "Permission denied (publickey)" in finding.text
    assert "ageing time, which the API cannot" in finding.text
    assert finding.fix[0] == "ssh-copy-id root@127.0.0.1"
    assert "proxmox.node" in "".join(finding.fix)


def test_no_ssh_to_a_host_that_is_refused(
    proxmox: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = fake_ssh(tmp_path, "exit 255", monkeypatch)
    monkeypatch.setenv("PROXMOX_HOST", "https://127.0.0.1:8006")
    findings = list(doctor.examine(Inventory(proxmox.path)))
    assert not words.exists() and not any(
        "ssh-copy-id" in line for finding in findings for line in finding.fix
    )
    rule = "'https://127.0.0.1:8006' must be a name or an address alone: 127.0.0.1"
    assert [rule in finding.text for finding in findings][-2:] == [True, True]


def test_local_endpoint_needs_no_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = fake_ssh(tmp_path, "exit 1", monkeypatch)
    monkeypatch.setenv("DASKLAB_STATE", str(tmp_path))
    list(doctor.examine(Inventory()))
    assert not words.exists()


def test_lab_without_ssh_to_the_node_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The alternative that doctor suggests: an empty group, and the node's name as proxmox.node."""
    shutil.copytree(EXAMPLES / "proxmox", tmp_path / "lab")
    hosts, settings = tmp_path / "lab" / "hosts.yml", tmp_path / "lab" / "group_vars" / "all.yml"
    lines = hosts.read_text().splitlines(keepends=True)
    remaining = [line for line in lines if not line.startswith("          ansible_") and "pve:" not in line]
    hosts.write_text("".join(remaining))
    settings.write_text(settings.read_text().replace("\"{{ groups['hypervisors'] | first }}\"", "node-one"))
    inventory = Inventory(hosts)
    assert inventory.hosts("hypervisors") == []
    assert inventory.value("worker-1", "guest")["node"] == "node-one"
    for name in ("HOST", "USER", "TOKEN_ID", "TOKEN_SECRET", "CA_FILE"):
        monkeypatch.delenv(f"PROXMOX_{name}", raising=False)
    assert "PROXMOX_HOST" in last(inventory).text


def test_missing_environment_variables_are_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOST", "USER", "TOKEN_ID", "TOKEN_SECRET", "CA_FILE"):
        monkeypatch.delenv(f"PROXMOX_{name}", raising=False)
    finding = last(Inventory(EXAMPLES / "proxmox" / "hosts.yml"))
    for name in ("PROXMOX_HOST", "PROXMOX_USER", "PROXMOX_TOKEN_ID", "PROXMOX_TOKEN_SECRET"):
        assert name in finding.text
    assert "pveum user token add lab@pve dasklab" in "\n".join(finding.fix)


def test_missing_image_file_is_reported_and_looked_for_in_the_labs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, "exit 0", monkeypatch)
    shutil.copytree(EXAMPLES / "proxmox", tmp_path / "lab" / "inventory")
    settings = tmp_path / "lab" / "inventory" / "group_vars" / "all.yml"
    text = settings.read_text().replace("# proxmox_container_image", "proxmox_container_image")
    settings.write_text(text.replace("lab_guests: >-\n", "lab_guests: container\nunused: >-\n"))
    archive = tmp_path / "lab" / "dasklab.tar.zst"

    def problems() -> list[str]:
        findings = doctor.examine(Inventory(tmp_path / "lab" / "inventory" / "hosts.yml"))
        return [finding.text for finding in findings if not finding.ok]

    expected = f"the image file of the containers does not exist: {archive}"
    assert expected in problems()
    archive.touch()
    assert expected not in problems()
