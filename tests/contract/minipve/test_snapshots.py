"""Snapshots: rollback, tree, refusals, recovery after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from minipve.config.journal import Journal

from tests.contract.conftest import Allow, serve
from tests.contract.endpoint import Endpoint, refused


@pytest.fixture
def vm(endpoint: Endpoint, vmid: int, disks: str, allow: Allow) -> Iterator[Any]:
    """A stopped VM with a disk that the token may snapshot."""
    allow("VM.Snapshot", "VM.Snapshot.Rollback")
    endpoint.create(vmid, scsi0=f"{disks}:1,format=qcow2", scsihw="virtio-scsi-pci", description="a VM")
    yield endpoint.vm(vmid)


def _image(endpoint: Endpoint, vmid: int) -> Path:
    assert endpoint.state is not None
    return endpoint.state / f"storage/images/{vmid}/vm-{vmid}-disk-0.qcow2"


def _write(image: Path, byte: str) -> None:
    command = ["qemu-io", "-f", "qcow2", "-c", f"write -P {byte} 0 64k", image]
    subprocess.run(command, check=True, capture_output=True)


def _holds(image: Path, byte: str) -> bool:
    command = ["qemu-io", "-f", "qcow2", "-c", f"read -P {byte} 0 64k", image]
    return "verification failed" not in subprocess.run(command, capture_output=True, text=True).stdout


def _tree(vm: Any) -> dict[str, str | None]:
    return {row["name"]: row.get("parent") for row in vm.snapshot.get()}


def test_snapshot_is_listed_described_and_deleted(endpoint: Endpoint, vm: Any, vmid: int) -> None:
    log = endpoint.done(vm.snapshot.post(snapname="first", description="before\nthe change"))
    assert any(line.startswith("snapshotting 'drive-scsi0' (") for line in log)
    row, current = vm.snapshot.get()
    assert (row["name"], row["vmstate"], row["description"].rstrip("\n")) == (
        "first",
        0,
        "before\nthe change",
    )
    assert isinstance(row["snaptime"], int)
    assert (current["name"], current["parent"], current["running"]) == ("current", "first", 0)
    vm.snapshot("first").config.put(description="another text")
    read = vm.snapshot("first").config.get()
    assert read["description"].rstrip("\n") == "another text"
    assert read["scsi0"] == vm.config.get()["scsi0"] == vm.config.get(snapshot="first")["scsi0"]
    endpoint.done(vm.snapshot("first").delete())
    assert _tree(vm) == {"current": None}
    assert "parent" not in vm.config.get()
    assert vm.config.get()["description"].rstrip("\n") == "a VM"


def test_rollback_restores_disk_and_configuration(ours: Endpoint, vm: Any, vmid: int) -> None:
    image = _image(ours, vmid)
    _write(image, "0x11")
    ours.done(vm.snapshot.post(snapname="first"))
    before = vm.config.get()
    _write(image, "0x22")
    vm.config.put(cores=2, scsi1="local:1", name="renamed")
    ours.done(vm.resize.put(disk="scsi0", size="2G"))
    ours.done(vm.snapshot("first").rollback.post())
    assert _holds(image, "0x11")
    after = vm.config.get()
    assert after.pop("unused0") == f"local:{vmid}/vm-{vmid}-disk-1.qcow2"
    for config in (before, after):
        config.pop("digest")
    assert after.pop("vmgenid") != before.pop("vmgenid")
    assert after == before
    info = subprocess.run(["qemu-img", "info", image], capture_output=True, text=True, check=True).stdout
    assert "virtual size: 1 GiB" in info


def test_snapshots_form_a_tree(endpoint: Endpoint, vm: Any) -> None:
    for name in ("a", "bb", "cc"):
        if name != "a":
            endpoint.done(vm.snapshot.post(snapname=name))
    endpoint.done(vm.snapshot("bb").rollback.post())
    endpoint.done(vm.snapshot.post(snapname="dd"))
    assert _tree(vm) == {"bb": None, "cc": "bb", "dd": "bb", "current": "dd"}
    endpoint.done(vm.snapshot("bb").delete())
    assert _tree(vm) == {"cc": None, "dd": None, "current": "dd"}


def test_snapshot_of_a_running_machine(endpoint: Endpoint, vm: Any, vmid: int) -> None:
    endpoint.done(vm.status.start.post())
    if endpoint.state is not None:
        error = refused(vm.snapshot.post, snapname="memory", vmstate=1)
        assert error.errors == {"vmstate": "not supported here, since snapshots do not contain memory"}
    endpoint.done(vm.snapshot.post(snapname="live"))
    endpoint.done(vm.snapshot.post(snapname="later"))
    assert _tree(vm) == {"live": None, "later": "live", "current": "later"}
    endpoint.done(vm.snapshot("later").delete())
    endpoint.done(vm.snapshot("live").rollback.post(start=1))
    assert vm.status.current.get()["status"] == "running"


def test_disk_of_a_snapshot_stays(endpoint: Endpoint, vm: Any, vmid: int) -> None:
    endpoint.done(vm.snapshot.post(snapname="first"))
    vm.config.put(delete="scsi0")
    assert "still in use" in refused(vm.config.put, delete="unused0").content or endpoint.state is None
    endpoint.done(vm.snapshot("first").delete())
    assert "unused0" in vm.config.get()
    vm.config.put(delete="unused0")


def test_clone_of_a_snapshot(ours: Endpoint, vm: Any, vmid: int) -> None:
    _write(_image(ours, vmid), "0x11")
    vm.config.put(cores=2)
    ours.done(vm.snapshot.post(snapname="first"))
    _write(_image(ours, vmid), "0x22")
    vm.config.put(cores=1)
    ours.done(vm.clone.post(newid=vmid + 1, snapname="first", full=1, pool=ours.pool))
    clone = ours.vm(vmid + 1).config.get()
    has_content = _holds(_image(ours, vmid + 1), "0x11")
    ours.remove(vmid + 1)
    assert (has_content, clone["cores"], clone.keys() & {"snaptime", "parent"}) == (True, 2, set())


def test_invalid_snapshot_calls_are_refused(endpoint: Endpoint, vm: Any, vmid: int) -> None:
    for name in ("current", "pending"):
        text = f"unable to use snapshot name '{name}' (reserved name)"
        assert refused(vm.snapshot.post, snapname=name).content == text
    assert "snapname" in refused(vm.snapshot.post, snapname="1st").errors
    assert "snapname" in refused(vm.snapshot.post, snapname="x" * 41).errors
    none, text = vm.snapshot("none"), "snapshot 'none' does not exist"
    assert refused(none.config.get).content == text
    assert refused(none.config.put, description="x").content == text
    assert endpoint.failed(none.delete()) == endpoint.failed(none.rollback.post()) == text
    error = refused(vm.clone.post, newid=vmid + 1, snapname="none", full=1, pool=endpoint.pool)
    assert error.content == text
    endpoint.done(vm.snapshot.post(snapname="once"))
    assert endpoint.failed(vm.snapshot.post(snapname="once")) == "snapshot name 'once' already used"
    error = refused(vm.template.post)
    assert error.content == "unable to create template, because VM contains snapshots"
    assert vm.feature.get(feature="snapshot")["hasFeature"] == 1
    endpoint.done(vm.snapshot("once").delete())
    endpoint.done(vm.template.post())
    assert (
        endpoint.failed(vm.snapshot.post(snapname="late")) == "you can't take a snapshot if it's a template"
    )
    assert not vm.feature.get(feature="snapshot")["hasFeature"]


def test_destroy_removes_snapshots(ours: Endpoint, vm: Any, vmid: int) -> None:
    ours.done(vm.snapshot.post(snapname="first"))
    vm.config.put(delete="scsi0")
    ours.done(vm.delete())
    assert ours.state is not None
    assert not (ours.state / f"storage/images/{vmid}").exists()


@pytest.mark.parametrize(
    ("lock", "state", "names"),
    [("snapshot", "prepare", []), ("snapshot-delete", "delete", []), ("rollback", None, ["first"])],
)
def test_interrupted_snapshot_operation_is_finished_or_undone(
    own: Endpoint, lock: str, state: str | None, names: list[str]
) -> None:
    assert own.state is not None
    own.grant(f"/pool/{own.pool}", "Snapshotting", ["VM.Snapshot"])
    own.create(100, scsi0="local:1")
    _write(_image(own, 100), "0x11")
    own.done(own.vm(100).snapshot.post(snapname="first"))
    _write(_image(own, 100), "0x22")
    pid = int((own.state / "run/endpoint.lock").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    file = own.state / "etc/pve/qemu-server/100.conf"
    text = f"lock: {lock}\n" + file.read_text()
    file.write_text(text + (f"snapstate: {state}\n" if state else ""))
    Journal(own.state / "etc/pve/unfinished/qemu").begin(100)
    again = serve(own.state)
    assert "lock" not in again.vm(100).config.get()
    assert [row["name"] for row in again.vm(100).snapshot.get()] == [*names, "current"]
    listed = subprocess.run(["qemu-img", "snapshot", "-l", _image(own, 100)], capture_output=True, text=True)
    assert ("first" in listed.stdout) == bool(names)
    assert _holds(_image(own, 100), "0x11" if names else "0x22")
