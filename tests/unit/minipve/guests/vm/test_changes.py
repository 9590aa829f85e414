"""Changes of a stopped VM's configuration, and their effect on its disks."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base.errors import ApiError
from minipve.base.paths import Paths
from minipve.config import drives
from minipve.config.store import GuestConfig
from minipve.guests.vm import changes
from minipve.node.node import Node
from minipve.node.tasks import Task

QUIET = Task("", Path("/dev/null"))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(Paths(tmp_path / "state", tmp_path / "cache"))
    node.storage.create_directories()
    return node


def test_pending_changes_of_a_stopped_vm_are_applied(node: Node) -> None:
    config = GuestConfig({"cores": "1", "net1": "virtio", "onboot": "1"})
    changes.stage(node, QUIET, 100, config, {"cores": "2", "scsi0": "local:0.01", "onboot": "1"})
    changes.stage_removal(node, 100, config, ["net1", "nosuch"])
    assert set(config.pending) == {"cores", "scsi0"}
    changes.apply_stopped(node, 100, config)
    volid = "local:100/vm-100-disk-0.qcow2"
    assert config.options == {"cores": "2", "onboot": "1", "scsi0": f"{volid},size=10737418"}
    changes.stage(node, QUIET, 100, config, {"scsi0": "none,media=cdrom"})
    changes.apply_stopped(node, 100, config)
    assert config.options["unused0"] == volid
    changes.stage_removal(node, 100, config, ["unused0"])
    changes.apply_stopped(node, 100, config)
    assert "unused0" not in config.options
    assert not node.storage.path(volid).exists()


def test_reverted_new_disk_becomes_unused(node: Node) -> None:
    """As on Proxmox VE, reverting a change deletes no data."""
    config = GuestConfig({"scsi0": "local:100/vm-100-disk-9.qcow2"})
    changes.stage(node, QUIET, 100, config, {"scsi1": "local:0.01", "cores": "4"})
    new_disk = drives.parse("scsi1", config.pending["scsi1"])["file"]
    changes.stage_removal(node, 100, config, ["scsi0"])
    changes.revert(node, 100, config, ["scsi1", "cores", "scsi0"])
    assert (config.pending, config.deleted, config.options["unused0"]) == ({}, [], new_disk)
    assert node.storage.path(new_disk).exists()


@pytest.mark.parametrize(
    "volid",
    [
        "local:iso/x.iso",
        "local:7300/vm-7300-disk-0.qcow2",
        "local:100/vm-100-disk-9.qcow2",
        "local:99/base-99-disk-0.qcow2/100/vm-100-disk-9.qcow2",
    ],
)
def test_volume_of_a_reverted_drive_is_not_deleted(node: Node, volid: str) -> None:
    """An ISO, another VM's disk, or the disk that the slot has already (with or without its base)."""
    node.storage.path(volid).parent.mkdir(parents=True, exist_ok=True)
    node.storage.path(volid).write_bytes(b"data")
    for drop in (changes.revert, changes.stage_removal):
        config = GuestConfig({"scsi0": "local:100/vm-100-disk-9.qcow2"}, {"scsi1": volid})
        drop(node, 100, config, ["scsi1"])
        assert node.storage.path(volid).exists()
        assert (config.pending, "unused0" in config.options) == ({}, False)


def test_removing_unused_deletes_only_the_vms_own_disk(node: Node) -> None:
    for volid in ("local:7300/vm-7300-disk-0.qcow2", "local:100/vm-100-disk-0.qcow2"):
        node.storage.path(volid).parent.mkdir(parents=True, exist_ok=True)
        node.storage.path(volid).write_bytes(b"data")
        config = GuestConfig({"unused0": volid})
        changes.stage_removal(node, 100, config, ["unused0"])
        changes.apply_stopped(node, 100, config)
        assert config == GuestConfig({})
        assert node.storage.path(volid).exists() is (":7300/" in volid)


def test_disk_still_in_use_is_not_deleted(node: Node) -> None:
    volid = "local:100/vm-100-disk-0.qcow2"
    config = GuestConfig({"unused0": volid, "scsi0": volid})
    with pytest.raises(ApiError, match="volume is still in use"):
        changes.stage_removal(node, 100, config, ["unused0"])
    assert config == GuestConfig(
        {"unused0": volid, "scsi0": volid}
    )  # no pending removal, which would fail again


def test_new_drives_are_created_together_or_not_at_all(node: Node) -> None:
    config = GuestConfig({})
    with pytest.raises(ApiError, match="failed to stat"):
        changes.stage(
            node,
            QUIET,
            100,
            config,
            {"scsi0": "local:0.01", "scsi1": "local:0,import-from=local:import/no.qcow2"},
        )
    assert node.storage.of_vm(100) == []
    assert config == GuestConfig({})
