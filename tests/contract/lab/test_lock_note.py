"""Two users of one lab on an endpoint, who share no file: the note in a guest's description."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dasklab.console.lab.locking import locked
from dasklab.machines.endpoint import lab_note
from dasklab.machines.endpoint.proxmox import Pve
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.machines.inventory.endpoint import Endpoint as Client
from dasklab.paths import INVENTORIES
from dasklab.running.lock import note as lock_note
from dasklab.running.lock.note import LabInUseError, NoteLock, held

from tests.contract.endpoint import Endpoint

LAB = "shared"


@pytest.fixture
def guest(endpoint: Endpoint, vmid: int) -> Iterator[int]:
    """A machine of the lab with a description of its own. The VMID below is free for a template."""
    first = vmid + 1
    endpoint.create(first, description="lab=shared image=x")
    endpoint.vm(first).config.put(tags=LAB)
    yield first
    endpoint.remove(first)


def user(endpoint: Endpoint, vmid: int, home: str) -> NoteLock:
    fields = {key: getattr(endpoint, key) for key in ("host", "port", "user", "token_id", "token_secret")}
    client = Client.from_inventory({**fields, "ca_file": endpoint.ca_file})
    return NoteLock(Pve(client), LAB, [(endpoint.node, vmid)], [Path(home)])


def description(endpoint: Endpoint, vmid: int) -> str:
    return str(endpoint.vm(vmid).config.get().get("description", "")).strip()


def test_second_user_is_refused_until_the_first_has_ended(endpoint: Endpoint, guest: int) -> None:
    first, second = user(endpoint, guest, "/a"), user(endpoint, guest, "/b")
    with held(first) as abandoned:
        assert abandoned is None
        assert "in use by" in description(endpoint, guest)
        assert lab_note.without(description(endpoint, guest)) == "lab=shared image=x"
        with pytest.raises(LabInUseError, match=r"lab shared on .* is in use by \S+@\S+: "):
            second.take()
        first.take()  # renews
    assert description(endpoint, guest) == "lab=shared image=x"
    with held(second) as abandoned:
        assert abandoned is None


def test_note_of_a_killed_command_is_taken_over_when_its_time_is_past(
    endpoint: Endpoint, guest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_note, "LEASE_S", -1.0)
    user(endpoint, guest, "/a").take()
    monkeypatch.undo()
    with held(user(endpoint, guest, "/b")) as abandoned:
        assert abandoned is not None


def test_note_of_a_killed_command_is_taken_over_at_once_with_its_lock_file(
    endpoint: Endpoint, guest: int
) -> None:
    user(endpoint, guest, "/a").take()
    with held(user(endpoint, guest, "/a")) as abandoned:
        assert abandoned is not None


def test_one_of_two_writers_loses(endpoint: Endpoint, guest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second user writes between the first one's look and write."""
    first, second = user(endpoint, guest, "/a"), user(endpoint, guest, "/b")
    look = first._guests

    def interrupted() -> object:
        guests = look()
        monkeypatch.undo()
        second.take()
        return guests

    monkeypatch.setattr(first, "_guests", interrupted)
    with pytest.raises(LabInUseError):
        first.take()
    second.release()
    assert description(endpoint, guest) == "lab=shared image=x"


def test_lab_without_guests_needs_no_note(endpoint: Endpoint, vmid: int) -> None:
    with held(user(endpoint, vmid, "/a")) as abandoned:
        assert abandoned is None


def test_destroy_in_another_home_is_refused_while_a_command_works(
    endpoint: Endpoint, guest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = tmp_path / "inventory"
    shutil.copytree(INVENTORIES / "examples" / "proxmox", inventory)
    settings = inventory / "group_vars" / "all.yml"
    text = settings.read_text().replace("lab_name: dasklab ", f"lab_name: {LAB} ")
    text = text.replace("lab_first_vmid: 9100 ", f"lab_first_vmid: {guest - 1} ")
    settings.write_text(text.replace("port: 8006", f"port: {endpoint.port}"))
    for name in ("host", "user", "token_id", "token_secret", "ca_file"):
        monkeypatch.setenv(f"PROXMOX_{name.upper()}", str(getattr(endpoint, name)))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "one"))
    with locked(Inventory(inventory / "hosts.yml"), reset=False):
        environment = {name: value for name, value in os.environ.items() if name != "DASKLAB_LOCK"}
        other = subprocess.run(
            [sys.executable, "-m", "dasklab", "destroy", "--yes", "-i", str(inventory / "hosts.yml")],
            env=environment | {"HOME": str(tmp_path / "two")}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert other.returncode == 1
    assert f"dasklab: lab {LAB} on {endpoint.url.removesuffix('/api2/json')} is in use by " in other.stderr
    assert "Traceback" not in other.stderr
    assert description(endpoint, guest) == "lab=shared image=x"
