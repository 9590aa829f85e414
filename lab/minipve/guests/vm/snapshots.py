"""Snapshots of VMs: internal qcow2 snapshots of all disks, and a copy of the configuration.

While one of the three operations is in progress, the config lock names it (``snapshot``,
``snapshot-delete``, ``rollback``). If the endpoint is killed, `recover` finishes or undoes the operation.
QEMU does the work for disks of a running VM, qemu-img for others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress

from minipve.base.errors import FAILURES, ApiError
from minipve.config import drives
from minipve.config.store import GuestConfig
from minipve.guests.vm import changes, machines, options
from minipve.network.links import Log
from minipve.node.node import Node
from minipve.storage import qemu_img

LOCKS = ("snapshot", "snapshot-delete", "rollback")
_METADATA = ("lock", "description", "snapstate", "snaptime")
logger = logging.getLogger(__name__)
Disks = list[tuple[str, str]]


def create(node: Node, log: Log, vmid: int, name: str, description: str) -> None:
    """Take a snapshot of a running or stopped VM. Its memory is not included."""
    with node.vms.locked(vmid):
        config = node.vms.load(vmid)
        if config.is_template:
            raise ApiError("you can't take a snapshot if it's a template")
        config.check_lock()
        if name in config.snapshots:
            raise ApiError(f"snapshot name '{name}' already used")
        snapshot = _without_metadata(config.options)
        snapshot |= {"snapstate": "prepare", "snaptime": str(int(time.time()))}
        snapshot |= {"description": description} if description else {}
        config.snapshots[name] = snapshot
        node.vms.begin_work(vmid, config, "snapshot")
        try:
            for slot, volid in _disks(snapshot):
                log(f"snapshotting 'drive-{slot}' ({volid})")
            _snapshot_disks(node, vmid, name, _disks(snapshot))
        except BaseException:
            _discard(node, log, vmid, config, name)
            raise
        del snapshot["snapstate"]
        config.options["parent"] = name
        _unlock_and_save(node, vmid, config)


def rollback(node: Node, log: Log, vmid: int, name: str) -> None:
    """Restore disks and configuration of a snapshot. A running VM is stopped."""
    with node.vms.locked(vmid):
        config = node.vms.load(vmid)
        if config.is_template:
            raise ApiError("you can't rollback if vm is a template")
        snapshot = existing(config, name)
        if state := snapshot.get("snapstate"):
            raise ApiError(f"unable to rollback to incomplete snapshot (snapstate = {state})")
        config.check_lock()
        machines.stop(node, vmid)
        config.options["parent"] = name  # tells `recover` the target of an interrupted rollback
        node.vms.begin_work(vmid, config, "rollback")
        _roll_back(node, log, vmid, config, name)


def delete(node: Node, log: Log, vmid: int, name: str, force: bool) -> None:
    """Delete a snapshot; with ``force`` also if a disk does not contain it any more."""
    with node.vms.locked(vmid):
        config = node.vms.load(vmid)
        snapshot = existing(config, name)
        config.check_lock()
        if config.is_template:
            raise ApiError("you can't delete a snapshot if vm is a template")
        snapshot["snapstate"] = "delete"
        node.vms.begin_work(vmid, config, "snapshot-delete")
        for slot, volid in _disks(snapshot):
            try:
                _delete_from_disk(node, vmid, name, slot, volid)
            except FAILURES as failed:
                if not force:
                    raise
                log(f"WARN: {failed}")
        _remove_from_config(config, vmid, name)
        _unlock_and_save(node, vmid, config)


def existing(config: GuestConfig, name: str) -> dict[str, str]:
    """Return a snapshot's configuration. Raises 500 with PVE's text if it does not exist."""
    if name not in config.snapshots:
        raise ApiError(f"snapshot '{name}' does not exist")
    return config.snapshots[name]


def recover(node: Node, vmid: int) -> None:
    """Finish the work of a killed endpoint: repeat a rollback, discard an incomplete snapshot."""
    with node.vms.locked(vmid):
        config = node.vms.load(vmid)
        if config.options["lock"] == "rollback":
            _roll_back(node, logger.info, vmid, config, config.options["parent"])
            return
        for name in [name for name, snapshot in config.snapshots.items() if "snapstate" in snapshot]:
            _discard(node, logger.info, vmid, config, name)


def _without_metadata(options: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in options.items() if k not in _METADATA and not k.startswith("unused")}


def _disks(snapshot: Mapping[str, str]) -> Disks:
    """Return (slot, volume ID) of the hard disks, which are what a snapshot covers."""
    return [(slot, drive["file"]) for slot, drive in drives.of(snapshot) if not drives.is_cdrom(drive)]


def _unlock_and_save(node: Node, vmid: int, config: GuestConfig) -> None:
    config.options.pop("lock", None)
    node.vms.save(vmid, config)


def _snapshot_disks(node: Node, vmid: int, name: str, disks: Disks) -> None:
    if machines.running_pid(node, vmid):
        machines.snapshot(node, vmid, name, [slot for slot, _ in disks])
        return
    for _, volid in disks:
        qemu_img.snapshot(node.storage.existing(volid), name)


def _delete_from_disk(node: Node, vmid: int, name: str, slot: str, volid: str) -> None:
    """Delete one disk's snapshot. A running QEMU has the disk open only if it is still in its slot."""
    attached = dict(_disks(node.vms.load(vmid).options)).get(slot) == volid
    if attached and machines.running_pid(node, vmid):
        machines.delete_snapshot(node, vmid, name, slot)
    else:
        qemu_img.delete_snapshot(node.storage.existing(volid), name)


def _discard(node: Node, log: Log, vmid: int, config: GuestConfig, name: str) -> None:
    """Remove an incomplete snapshot. Some disks may not contain it."""
    for slot, volid in _disks(config.snapshots[name]):
        with suppress(ApiError, *FAILURES):
            _delete_from_disk(node, vmid, name, slot, volid)
            log(f"removed snapshot of 'drive-{slot}' ({volid})")
    _remove_from_config(config, vmid, name)
    _unlock_and_save(node, vmid, config)


def _remove_from_config(config: GuestConfig, vmid: int, name: str) -> None:
    """Remove a snapshot's section. Its children get its parent; disks that only it used become unused."""
    removed = config.snapshots.pop(name)
    for section in (config.options, *config.snapshots.values()):
        if section.get("parent") == name:
            section.pop("parent")
            section |= {"parent": removed["parent"]} if "parent" in removed else {}
    changes.keep_unused(config, [volid for _, volid in drives.volumes(removed, vmid)])


def _roll_back(node: Node, log: Log, vmid: int, config: GuestConfig, name: str) -> None:
    snapshot = config.snapshots[name]
    for slot, volid in _disks(snapshot):
        log(f"rolling back 'drive-{slot}' ({volid})")
        qemu_img.roll_back(node.storage.existing(volid), name)
    before = [volid for part in (config.options, config.pending) for _, volid in drives.volumes(part, vmid)]
    current = {k: v for k, v in config.options.items() if k == "description" or k.startswith("unused")}
    config.options = current | _without_metadata(snapshot) | {"parent": name}
    if "vmgenid" in config.options:  # tells the guest that its state has been reset
        config.options["vmgenid"] = options.renewed_identity(config.options)["vmgenid"]
    config.pending, config.deleted = {}, []
    changes.keep_unused(config, before)
    _unlock_and_save(node, vmid, config)
