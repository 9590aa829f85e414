"""Create, clone, convert to a template, start, resize and destroy VMs; each function is the work of a task.

A failure leaves nothing behind: the volumes and the configuration created so far are removed. If the
endpoint is killed, ``recover`` removes incomplete VMs at its next start.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from minipve.access import permissions
from minipve.access.permissions import Permit
from minipve.base.errors import FAILURES, ApiError, error_prefix
from minipve.config import drives, nics
from minipve.config.rules.schema import QEMU
from minipve.config.store import SHORT_LOCK_WAIT_S, GuestConfig
from minipve.guests import shared
from minipve.guests.vm import changes, machines, options, snapshots, volumes
from minipve.node.node import Node
from minipve.node.tasks import Task
from minipve.storage import directory, qemu_img


def recover(node: Node) -> list[int]:
    """Finish the work of a killed endpoint: remove incomplete VMs, complete or undo snapshots.

    Returns:
        The VMIDs of the removed VMs.
    """
    removed = shared.recover(node, QEMU)
    for vmid in node.vms.unfinished(snapshots.LOCKS):
        with suppress(ApiError, *FAILURES):  # the VM stays locked, so that its owner sees the problem
            snapshots.recover(node, vmid)
    return removed


def create(
    node: Node, permit: Permit, task: Task, vmid: int, params: dict[str, str], pool: str | None
) -> None:
    """Create a VM's volumes and write its configuration, which so far holds the lock ``create`` only."""
    with (
        node.vms.locked(vmid),
        shared.undo_on_failure(node, QEMU, vmid),
        error_prefix(f"unable to create VM {vmid} - "),
    ):
        config = dict(params)
        for slot, drive in drives.of(params):
            config[slot] = volumes.create(node, task, vmid, slot, drive)
        if "tags" in params:
            shared.check_tags(permit, vmid)
        defaults = options.defaults(config, machines.qemu_version())
        if config.get("vmgenid") == "1":
            del config["vmgenid"]
        shared.add_to_pool(node, pool, vmid)
        node.vms.save(vmid, GuestConfig(defaults | config))


@dataclass(frozen=True)
class CloneRequest:
    """The parameters of a clone call; ``full`` copies the disks instead of linking them to their bases."""

    source: int
    newid: int
    full: bool
    name: str | None = None
    description: str | None = None
    pool: str | None = None
    snapname: str | None = None


def clone(node: Node, task: Task, request: CloneRequest) -> None:
    """Clone a VM. The source's lock is shared, so that several clones of a template can run at a time."""
    newid = request.newid
    with (
        shared.undo_on_failure(node, QEMU, newid),
        node.vms.locked(request.source, SHORT_LOCK_WAIT_S, shared=True),
    ):
        source = node.vms.load(request.source)
        source.check_lock()
        with node.vms.locked(newid), error_prefix("clone failed: "):
            original = snapshots.existing(source, request.snapname) if request.snapname else source.options
            copy = _copied_options(original, request)
            for slot, drive in drives.of(original):
                full = request.full or not _is_base(drive)
                copy[slot] = volumes.clone(node, task, newid, slot, drive, full, request.snapname)
            shared.add_to_pool(node, request.pool, newid)
            node.vms.save(newid, GuestConfig(copy))


def _is_base(drive: drives.Drive) -> bool:
    return not drives.is_cdrom(drive) and drives.parse_volume_id(drive["file"]).is_base


def _copied_options(original: Mapping[str, str], request: CloneRequest) -> dict[str, str]:
    dropped = ("template", "lock", "parent", "snaptime", "snapstate")
    copy = {k: v for k, v in original.items() if k not in dropped and not k.startswith("unused")}
    for key in [k for k in copy if k.startswith("net")]:
        copy[key] = nics.with_new_mac(copy[key])
    copy["name"] = request.name or f"Copy-of-VM-{original.get('name', request.source)}"
    if request.description:
        copy["description"] = request.description
    return copy | options.renewed_identity(copy)


def make_template(node: Node, task: Task, vmid: int) -> None:
    """Convert a VM's disks to base images and mark it as a template. An interrupted call can be repeated."""
    with node.vms.changing(vmid) as config:
        config.check_lock()
        for slot, drive in drives.of(dict(config.options)):
            if not drives.is_cdrom(drive) and not drives.parse_volume_id(drive["file"]).is_base:
                config.options[slot] = volumes.to_base(node, slot, drive)
                node.vms.save(vmid, config)
                task.log(f"converted {drive['file']} to {drives.parse(slot, config.options[slot])['file']}")
        config.options["template"] = "1"


def resize(
    node: Node, permit: Permit, task: Task, vmid: int, slot: str, size: str, digest: str | None
) -> None:
    """Grow a disk of a running or stopped VM, to a size (``8G``) or by an amount (``+1G``)."""
    with node.vms.changing(vmid) as config:
        config.check_digest(digest)
        config.check_lock()
        if slot not in config.options:
            raise ApiError(f"disk '{slot}' does not exist")
        drive = drives.parse(slot, config.options[slot])
        if drives.is_cdrom(drive):
            raise ApiError("you can't resize a cdrom")
        permit.need_right(permissions.DISK_SPACE, storage=drives.STORAGE)
        file = node.storage.existing(drive["file"])
        old_bytes = (directory.image_facts(file) or {"virtual-size": 0})["virtual-size"]
        new_bytes = drives.size_bytes(size.lstrip("+")) + (old_bytes if size.startswith("+") else 0)
        new_bytes = (new_bytes + 511) // 512 * 512
        if new_bytes < old_bytes:
            raise ApiError("shrinking disks is not supported")
        if machines.running_pid(node, vmid):
            machines.resize_block(node, vmid, slot, new_bytes)
        else:
            qemu_img.resize(file, new_bytes)
        task.log("Image resized.")
        config.options[slot] = drives.text(slot, drive | {"size": drives.size_text(new_bytes)})


def start(node: Node, task: Task, vmid: int, skiplock: bool = False) -> None:
    """Apply the pending changes and start the VM."""
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
    """Remove a VM with its volumes, pool memberships and permissions.

    Args:
        node: the VM's node.
        task: the task to log to.
        vmid: the VM.
        skiplock: ignore the config lock.
        unreferenced: also remove volumes of the VM that no option refers to.
    """
    with node.vms.locked(vmid):
        config = node.vms.load_or_empty(vmid)
        if not skiplock:
            config.check_lock()
        if machines.running_pid(node, vmid):
            raise ApiError(f"VM {vmid} is running - destroy failed")
        sections = (config.options, *config.snapshots.values())
        owned = list(dict.fromkeys(v for section in sections for _, v in drives.volumes(section, vmid)))
        if unreferenced or not config.options or config.options.get("lock") in shared.UNFINISHED:
            files = {node.storage.path(volid) for volid in owned}
            owned += [v for v in node.storage.of_vm(vmid) if node.storage.path(v) not in files]
        for volid in owned:
            if drives.parse_volume_id(volid).is_base and node.storage.users_of(volid):
                raise ApiError(f"base volume '{volid}' is still in use by linked cloned")
        for volid in owned:
            node.storage.remove(volid)
            task.log(f"removed volume '{volid}'")
        machines.remove_seed(node, vmid)
        node.vms.begin_work(vmid, GuestConfig(), "destroyed")
        shared.forget_rights(node, vmid)
        node.vms.remove(vmid)
