"""Snapshots: qcow2's own, of every disk of a VM at once, and a copy of its configuration.

The config lock says what is under way (``snapshot``, ``snapshot-delete``, ``rollback``), and each of the
three can be finished or undone by who finds it: see ``recover``. A running machine's disks are QEMU's affair.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress

from minipve.config import drives
from minipve.config.store import GuestConfig
from minipve.errors import FAILURES, ApiError
from minipve.image import qemu_img
from minipve.network.links import Log
from minipve.node import Node
from minipve.vm import changes, machines, options

LOCKS = ("snapshot", "snapshot-delete", "rollback")
_NOT_COPIED = ("lock", "description", "snapstate", "snaptime")
log = logging.getLogger(__name__)
Disks = list[tuple[str, str]]


def create(node: Node, say: Log, vmid: int, name: str, description: str) -> None:
    """Take a snapshot of a VM, running or not; of its memory nothing is kept."""
    with node.vms.locked(vmid):
        config = node.vms.load(vmid)
        if config.is_template:
            raise ApiError("you can't take a snapshot if it's a template")
        config.check_lock()
        if name in config.snapshots:
            raise ApiError(f"snapshot name '{name}' already used")
        made = _copied(config.options) | {"snapstate": "prepare", "snaptime": str(int(time.time()))}
        config.snapshots[name] = made | ({"description": description} if description else {})
        node.vms.mark(vmid, config, "snapshot")
        try:
            for slot, volid in _disks(made):
                say(f"snapshotting 'drive-{slot}' ({volid})")
            _take(node, vmid, name, _disks(made))
        except BaseException:
            _forget(node, say, vmid, config, name)
            raise
        del made["snapstate"]
        del config.snapshots[name]["snapstate"]
        config.options["parent"] = name
        _done(node, vmid, config)


def rollback(node: Node, say: Log, vmid: int, name: str) -> None:
    """Bring disks and configuration back to a snapshot; a running machine is stopped."""
    with node.vms.locked(vmid):
        config = node.vms.load(vmid)
        if config.is_template:
            raise ApiError("you can't rollback if vm is a template")
        snapshot = existing(config, name)
        if state := snapshot.get("snapstate"):
            raise ApiError(f"unable to rollback to incomplete snapshot (snapstate = {state})")
        config.check_lock()
        machines.stop(node, vmid)
        config.options["parent"] = name  # where an interrupted rollback was bound for
        node.vms.mark(vmid, config, "rollback")
        _roll_back(node, say, vmid, config, name)


def delete(node: Node, say: Log, vmid: int, name: str, force: bool) -> None:
    """Remove a snapshot; ``force`` does so even where a disk has lost it."""
    with node.vms.locked(vmid):
        config = node.vms.load(vmid)
        snapshot = existing(config, name)
        config.check_lock()
        if config.is_template:
            raise ApiError("you can't delete a snapshot if vm is a template")
        snapshot["snapstate"] = "delete"
        node.vms.mark(vmid, config, "snapshot-delete")
        for slot, volid in _disks(snapshot):
            try:
                _drop(node, vmid, name, slot, volid)
            except FAILURES as failed:
                if not force:
                    raise
                say(f"WARN: {failed}")
        _unlink(config, vmid, name)
        _done(node, vmid, config)


def existing(config: GuestConfig, name: str) -> dict[str, str]:
    """A snapshot's configuration; 500 with PVE's text when there is none of that name."""
    if name not in config.snapshots:
        raise ApiError(f"snapshot '{name}' does not exist")
    return config.snapshots[name]


def recover(node: Node, vmid: int) -> None:
    """Finish or undo what a killed endpoint left: a rollback is done again, else no snapshot is left."""
    with node.vms.locked(vmid):
        config = node.vms.load(vmid)
        if config.options["lock"] == "rollback":
            _roll_back(node, log.info, vmid, config, config.options["parent"])
            return
        for name in [name for name, snapshot in config.snapshots.items() if "snapstate" in snapshot]:
            _forget(node, log.info, vmid, config, name)


def _copied(found: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in found.items() if k not in _NOT_COPIED and not k.startswith("unused")}


def _disks(snapshot: Mapping[str, str]) -> Disks:
    """(slot, volume id) of what is snapshotted: the hard disks."""
    return [(slot, drive["file"]) for slot, drive in drives.of(snapshot) if not drives.is_cdrom(drive)]


def _done(node: Node, vmid: int, config: GuestConfig) -> None:
    config.options.pop("lock", None)
    node.vms.save(vmid, config)


def _take(node: Node, vmid: int, name: str, found: Disks) -> None:
    if machines.running_pid(node, vmid):
        machines.snapshot(node, vmid, name, [slot for slot, _ in found])
        return
    for _, volid in found:
        qemu_img.snapshot(node.storage.existing(volid), name)


def _drop(node: Node, vmid: int, name: str, slot: str, volid: str) -> None:
    """Remove one disk's snapshot; QEMU has the disk only while it is in its slot."""
    attached = dict(_disks(node.vms.load(vmid).options)).get(slot) == volid
    if attached and machines.running_pid(node, vmid):
        machines.delete_snapshot(node, vmid, name, slot)
    else:
        qemu_img.delete_snapshot(node.storage.existing(volid), name)


def _forget(node: Node, say: Log, vmid: int, config: GuestConfig, name: str) -> None:
    """Leave nothing of a snapshot that was not finished; disks that never had it do not matter."""
    for slot, volid in _disks(config.snapshots[name]):
        with suppress(ApiError, *FAILURES):
            _drop(node, vmid, name, slot, volid)
            say(f"removed snapshot of 'drive-{slot}' ({volid})")
    _unlink(config, vmid, name)
    _done(node, vmid, config)


def _unlink(config: GuestConfig, vmid: int, name: str) -> None:
    """Take a snapshot out of the tree: its children get its parent, its disks stay as unused ones."""
    gone = config.snapshots.pop(name)
    for section in (config.options, *config.snapshots.values()):
        if section.get("parent") == name:
            section.pop("parent")
            section |= {"parent": gone["parent"]} if "parent" in gone else {}
    changes.keep_unused(config, [volid for _, volid in drives.volumes(gone, vmid)])


def _roll_back(node: Node, say: Log, vmid: int, config: GuestConfig, name: str) -> None:
    snapshot = config.snapshots[name]
    for slot, volid in _disks(snapshot):
        say(f"rolling back 'drive-{slot}' ({volid})")
        qemu_img.roll_back(node.storage.existing(volid), name)
    before = [volid for part in (config.options, config.pending) for _, volid in drives.volumes(part, vmid)]
    kept = {k: v for k, v in config.options.items() if k == "description" or k.startswith("unused")}
    config.options = kept | _copied(snapshot) | {"parent": name}
    if "vmgenid" in config.options:  # the guest is to know that its time has been turned back
        config.options["vmgenid"] = options.renewed_identity(config.options)["vmgenid"]
    config.pending, config.deleted = {}, []
    changes.keep_unused(config, before)
    _done(node, vmid, config)
