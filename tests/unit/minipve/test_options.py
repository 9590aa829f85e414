"""A VM's options: privileges, canonical forms, boot order, and the staging of changes on a stopped VM."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from minipve.access.accounts import Access, grant
from minipve.access.permit import Permit
from minipve.config import drives, nics, pending, schema
from minipve.config.store import GuestConfig
from minipve.errors import ApiError
from minipve.node import Node
from minipve.paths import Paths
from minipve.tasks import Task
from minipve.vm import changes, options

QUIET = Task("", Path("/dev/null"))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(Paths(tmp_path / "state", tmp_path / "cache"))
    made.storage.create_directories()
    return made


@pytest.mark.parametrize(
    ("option", "privilege"),
    [
        ("cores", "VM.Config.CPU"), ("memory", "VM.Config.Memory"), ("net0", "VM.Config.Network"),
        ("rng0", "VM.Config.HWType"), ("scsihw", "VM.Config.HWType"), ("hotplug", "VM.Config.HWType"),
        ("boot", "VM.Config.Disk"), ("agent", "VM.Config.Options"), ("name", "VM.Config.Options"),
        ("ipconfig0", "VM.Config.Cloudinit"), ("cicustom", "VM.Config.Cloudinit"),
    ],
)  # fmt: skip
def test_one_privilege_is_enough_and_another_is_not(tmp_path: Path, option: str, privilege: str) -> None:
    access = Access(tmp_path / "access.json")
    permit = Permit(access, "a@pve")
    with access.change() as data:
        data["users"]["a@pve"] = {"enable": 1, "tokens": {}}
        data["roles"]["R"] = [privilege]
        data["roles"]["Other"] = ["VM.Audit"]
        grant(data, "/vms/100", "Other", "a@pve")
    with pytest.raises(ApiError, match=privilege):
        options.check(permit, 100, None, [option])
    with access.change() as data:
        grant(data, "/vms/100", "R", "a@pve")
    options.check(permit, 100, None, [option])


def test_every_option_of_the_schema_belongs_to_someone() -> None:
    """Options that nobody but root may set are exactly PVE's."""
    known = schema.method("PUT", "/nodes/{node}/qemu/{vmid}/config").properties
    names = {name for name in known if not drives.is_slot(name)}
    special = re.compile(r"(?:efidisk|tpmstate|unused|serial|usb|hostpci|virtiofs)\d+|tags")
    root_only = {
        re.sub(r"\d+$", "", n) for n in names if not options._privileges(n) and not special.fullmatch(n)
    }
    control = {
        "background_delay",
        "bwlimit",
        "cdrom",
        "delete",
        "digest",
        "force",
        "node",
        "revert",
        "skiplock",
        "vmid",
    }
    assert root_only - control - {"import-working-storage"} == {
        "affinity", "amd-sev", "arch", "args", "hookscript", "hugepages", "intel-tdx", "ivshmem",
        "keephugepages", "lock", "parallel", "spice_enhancements", "vmgenid",
    }  # fmt: skip


def test_normal_forms() -> None:
    given = {
        "tags": "b;A,a",
        "cores": 2,
        "net0": "bridge=b,model=e1000",
        "scsi0": "ssd=1,file=local:32,discard=on",
    }
    stored = options.normalise(given)
    assert stored["tags"] == "a;b"
    assert stored["cores"] == "2"
    assert re.fullmatch(r"e1000=BC:24:11(:[0-9A-F]{2}){3},bridge=b", stored["net0"])
    assert stored["scsi0"] == "local:32,discard=on,ssd=1"
    assert nics.with_new_mac(stored["net0"]) != stored["net0"]


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ({}, ""),
        ({"net1": "virtio", "net0": "virtio"}, "net0"),
        (
            {"scsi1": "local:1", "scsi0": "local:1", "ide2": "local:cloudinit", "net0": "virtio"},
            "scsi0;ide2;net0",
        ),
        ({"ide2": "none,media=cdrom", "virtio0": "local:1"}, "virtio0;ide2"),
    ],
)
def test_default_boot_order(given: dict[str, str], order: str) -> None:
    assert drives.default_boot(given) == f"order={order}"


def test_passwords() -> None:
    assert options.hash_password("$5$salt$hash") == "$5$salt$hash"
    assert options.hash_password("secret").startswith("$5$")


def test_changes_of_a_stopped_vm(node: Node) -> None:
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


def test_a_reverted_new_disk_stays_as_an_unused_one(node: Node) -> None:
    """As PVE does it: no data goes because of a change that is taken back."""
    config = GuestConfig({"scsi0": "local:100/vm-100-disk-9.qcow2"})
    changes.stage(node, QUIET, 100, config, {"scsi1": "local:0.01", "cores": "4"})
    made = drives.parse("scsi1", config.pending["scsi1"])["file"]
    changes.stage_removal(node, 100, config, ["scsi0"])
    changes.revert(node, 100, config, ["scsi1", "cores", "scsi0"])
    assert (config.pending, config.deleted, config.options["unused0"]) == ({}, [], made)
    assert node.storage.path(made).exists()


@pytest.mark.parametrize(
    "volid",
    [
        "local:iso/x.iso",
        "local:7300/vm-7300-disk-0.qcow2",
        "local:100/vm-100-disk-9.qcow2",
        "local:99/base-99-disk-0.qcow2/100/vm-100-disk-9.qcow2",
    ],
)
def test_what_a_pending_drive_only_named_is_never_deleted(node: Node, volid: str) -> None:
    """An ISO, another VM's disk, the disk that the slot has anyway (in any spelling)."""
    node.storage.path(volid).parent.mkdir(parents=True, exist_ok=True)
    node.storage.path(volid).write_bytes(b"data")
    for drop in (changes.revert, changes.stage_removal):
        config = GuestConfig({"scsi0": "local:100/vm-100-disk-9.qcow2"}, {"scsi1": volid})
        drop(node, 100, config, ["scsi1"])
        assert node.storage.path(volid).exists()
        assert (config.pending, "unused0" in config.options) == ({}, False)


def test_an_unused_entry_frees_only_the_vm_s_own_disk(node: Node) -> None:
    for volid in ("local:7300/vm-7300-disk-0.qcow2", "local:100/vm-100-disk-0.qcow2"):
        node.storage.path(volid).parent.mkdir(parents=True, exist_ok=True)
        node.storage.path(volid).write_bytes(b"data")
        config = GuestConfig({"unused0": volid})
        changes.stage_removal(node, 100, config, ["unused0"])
        changes.apply_stopped(node, 100, config)
        assert config == GuestConfig({})
        assert node.storage.path(volid).exists() is (":7300/" in volid)


def test_a_disk_that_is_used_elsewhere_is_not_freed(node: Node) -> None:
    volid = "local:100/vm-100-disk-0.qcow2"
    config = GuestConfig({"unused0": volid, "scsi0": volid})
    with pytest.raises(ApiError, match="volume is still in use"):
        changes.stage_removal(node, 100, config, ["unused0"])
    assert config == GuestConfig({"unused0": volid, "scsi0": volid})  # nothing waits to be refused again


def test_of_two_new_drives_both_are_made_or_none(node: Node) -> None:
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


@pytest.mark.parametrize(
    ("old", "new", "replug"),
    [
        (
            "virtio=02:00:00:00:00:01,bridge=a",
            "virtio=02:00:00:00:00:01,bridge=b,rate=1,link_down=1,tag=3",
            False,
        ),
        ("virtio=02:00:00:00:00:0a,bridge=a", "virtio=02:00:00:00:00:0A,bridge=a", False),
        ("virtio=02:00:00:00:00:01,bridge=a", "e1000=02:00:00:00:00:01,bridge=a", True),
        ("virtio=02:00:00:00:00:01,bridge=a", "virtio=02:00:00:00:00:02,bridge=a", True),
        ("virtio=02:00:00:00:00:01,bridge=a", "virtio=02:00:00:00:00:01", True),
        ("virtio=02:00:00:00:00:01,bridge=a", "virtio=02:00:00:00:00:01,bridge=a,queues=2", True),
    ],
)
def test_what_needs_another_plug(old: str, new: str, replug: bool) -> None:
    assert nics.needs_new_device(nics.parse(old), nics.parse(new)) is replug


def test_pending_rows() -> None:
    config = GuestConfig(
        {"cores": "1", "cipassword": "x", "onboot": "1"}, {"cores": "2", "memory": "64"}, ["onboot"]
    )
    rows = {str(row.pop("key")): row for row in pending.rows(config)}
    assert rows["cores"] == {"value": 1, "pending": 2}
    assert rows["memory"] == {"pending": "64"}
    assert rows["onboot"] == {"value": 1, "delete": 1}
    assert rows["cipassword"] == {"value": "**********"}
    assert rows["digest"] == {"value": config.digest}
