"""What tasks do to whole VMs: create, clone, convert to a template, start, resize, destroy.

Each leaves either the finished VM or nothing: on failure the volumes and the configuration made so far go
away. A killed endpoint leaves its half-made VMs to ``recover``; on a node the workers would outlive it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from minipve import firewall, guests
from minipve.access.permit import Permit
from minipve.config import drives, nics
from minipve.config.kinds import QEMU
from minipve.config.store import SHORT_LOCK_WAIT_S, GuestConfig
from minipve.errors import FAILURES, ApiError, error_prefix
from minipve.image import qemu_img, storage
from minipve.node import Node
from minipve.tasks import Task
from minipve.vm import changes, machines, options, snapshots, volumes


def recover(node: Node) -> list[int]:
    """Remove what a killed endpoint left half-made or half-removed, finish snapshots; returns the VMIDs."""
    half = guests.recover(node, QEMU)
    for vmid in node.vms.unfinished(snapshots.LOCKS):
        with suppress(ApiError, *FAILURES):  # it stays locked, for its owner to look at
            snapshots.recover(node, vmid)
    return half


def create(
    node: Node, permit: Permit, task: Task, vmid: int, given: dict[str, str], pool: str | None
) -> None:
    """Fill the configuration that holds the lock ``create``."""
    with (
        node.vms.locked(vmid),
        guests.undo_on_failure(node, QEMU, vmid),
        error_prefix(f"unable to create VM {vmid} - "),
    ):
        made = dict(given)
        for slot, drive in drives.of(given):
            made[slot] = volumes.create(node, task, vmid, slot, drive)
        if "tags" in given:
            guests.check_tags(permit, vmid)
        defaults = options.defaults(made, machines.qemu_version())
        if made.get("vmgenid") == "1":
            del made["vmgenid"]
        guests.add_to_pool(node, pool, vmid)
        node.vms.save(vmid, GuestConfig(defaults | made))


@dataclass(frozen=True)
class Clone:
    """What a clone call asks for."""

    source: int
    newid: int
    full: bool
    name: str | None = None
    description: str | None = None
    pool: str | None = None
    snapname: str | None = None


def clone(node: Node, task: Task, wanted: Clone) -> None:
    """Copy a VM; several linked clones of one template may run at once (its lock is shared)."""
    newid = wanted.newid
    with (
        guests.undo_on_failure(node, QEMU, newid),
        node.vms.locked(wanted.source, SHORT_LOCK_WAIT_S, shared=True),
    ):
        source = node.vms.load(wanted.source)
        source.check_lock()
        with node.vms.locked(newid), error_prefix("clone failed: "):
            found = snapshots.existing(source, wanted.snapname) if wanted.snapname else source.options
            made = _copied_options(found, wanted)
            for slot, drive in drives.of(found):
                full = wanted.full or not _is_base(drive)
                made[slot] = volumes.clone(node, task, newid, slot, drive, full, wanted.snapname)
            guests.add_to_pool(node, wanted.pool, newid)
            firewall.copy(node, wanted.source, newid)
            node.vms.save(newid, GuestConfig(made))


def _is_base(drive: drives.Drive) -> bool:
    return not drives.is_cdrom(drive) and storage.parse(drive["file"]).is_base


def _copied_options(found: Mapping[str, str], wanted: Clone) -> dict[str, str]:
    dropped = ("template", "lock", "parent", "snaptime", "snapstate")
    made = {k: v for k, v in found.items() if k not in dropped and not k.startswith("unused")}
    for key in [k for k in made if k.startswith("net")]:
        made[key] = nics.with_new_mac(made[key])
    made["name"] = wanted.name or f"Copy-of-VM-{found.get('name', wanted.source)}"
    if wanted.description:
        made["description"] = wanted.description
    return made | options.renewed_identity(made)


def make_template(node: Node, task: Task, vmid: int) -> None:
    """Rename the disks to bases and mark the VM; a second run finishes what a killed first one began."""
    with node.vms.changing(vmid) as config:
        config.check_lock()
        for slot, drive in drives.of(dict(config.options)):
            if not drives.is_cdrom(drive) and not storage.parse(drive["file"]).is_base:
                config.options[slot] = volumes.to_base(node, slot, drive)
                node.vms.save(vmid, config)
                task.log(f"converted {drive['file']} to {drives.parse(slot, config.options[slot])['file']}")
        config.options["template"] = "1"


def resize(node: Node, task: Task, vmid: int, slot: str, size: str, digest: str | None) -> None:
    """Grow a disk by (``+1G``) or to a size, also of a running VM."""
    with node.vms.changing(vmid) as config:
        config.check_digest(digest)
        config.check_lock()
        if slot not in config.options:
            raise ApiError(f"disk '{slot}' does not exist")
        drive = drives.parse(slot, config.options[slot])
        if drives.is_cdrom(drive):
            raise ApiError("you can't resize a cdrom")
        file = node.storage.existing(drive["file"])
        now = (storage.image_facts(file) or {"virtual-size": 0})["virtual-size"]
        wanted = storage.size_bytes(size.lstrip("+")) + (now if size.startswith("+") else 0)
        wanted = (wanted + 511) // 512 * 512
        if wanted < now:
            raise ApiError("shrinking disks is not supported")
        if machines.running_pid(node, vmid):
            machines.resize_block(node, vmid, slot, wanted)
        else:
            qemu_img.resize(file, wanted)
        task.log("Image resized.")
        config.options[slot] = drives.text(slot, drive | {"size": storage.size_text(wanted)})


def start(node: Node, task: Task, vmid: int, skiplock: bool = False) -> None:
    """Bring pending changes into force and start the machine."""
    with node.vms.locked(vmid):
        config = node.vms.load(vmid)
        if config.is_template:
            raise ApiError("you can't start a vm if it's a template")
        if not skiplock:
            config.check_lock()
        if machines.running_pid(node, vmid):
            raise ApiError(f"VM {vmid} already running")
        changes.apply_stopped(node, vmid, config)
        node.vms.save(vmid, config)
        machines.start(node, vmid, config.options, task)


def destroy(node: Node, task: Task, vmid: int, skiplock: bool, unreferenced: bool) -> None:
    """Remove a VM, its volumes, its place in the pools and the rights given on it."""
    with node.vms.locked(vmid):
        config = node.vms.load_or_empty(vmid)
        if not skiplock:
            config.check_lock()
        if machines.running_pid(node, vmid):
            raise ApiError(f"VM {vmid} is running - destroy failed")
        sections = (config.options, *config.snapshots.values())
        owned = list(dict.fromkeys(v for section in sections for _, v in drives.volumes(section, vmid)))
        if unreferenced or not config.options or config.options.get("lock") in guests.UNFINISHED:
            known = {node.storage.path(volid) for volid in owned}
            owned += [v for v in node.storage.of_vm(vmid) if node.storage.path(v) not in known]
        for volid in owned:
            if storage.parse(volid).is_base and node.storage.users_of(volid):
                raise ApiError(f"base volume '{volid}' is still in use by linked cloned")
        for volid in owned:
            node.storage.remove(volid)
            task.log(f"removed volume '{volid}'")
        machines.forget(node, vmid)
        node.vms.mark(vmid, GuestConfig(), "destroyed")
        guests.forget_rights(node, vmid)
        firewall.forget(node, vmid)
        node.vms.remove(vmid)
