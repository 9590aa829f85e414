"""Change a VM's configuration by PVE's rules (qemu-server, `vmconfig_hotplug_pending`).

Every change first becomes pending. On a stopped VM all pending changes are then applied; on a running one
those that need no restart.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from minipve.base.errors import ApiError, MachineError
from minipve.config import drives, nics
from minipve.config.rules.formats import split_list
from minipve.config.store import GuestConfig
from minipve.guests.vm import machines, volumes
from minipve.node.node import Node
from minipve.node.tasks import Task

_NEEDS_NO_RESTART = {
    "autostart", "description", "hookscript", "hotplug", "lock", "migrate_downtime", "migrate_speed", "name",
    "onboot", "protection", "shares", "startup", "tags", "vmstatestorage",
    "cicustom", "cipassword", "citype", "ciuser", "ciupgrade", "nameserver", "searchdomain", "sshkeys",
}  # fmt: skip
_DEFAULT_HOTPLUG = "network,disk,usb"


def stage(node: Node, task: Task, vmid: int, config: GuestConfig, new: dict[str, str]) -> None:
    """Create the volumes of new drives and make all ``new`` options pending."""
    drive_options = _create_volumes(node, task, vmid, new)
    for name, value in (new | drive_options).items():
        config.deleted = [key for key in config.deleted if key != name]
        _withdraw(node, vmid, config, name)
        if config.options.get(name) != value:
            config.pending[name] = value


def _create_volumes(node: Node, task: Task, vmid: int, new: dict[str, str]) -> dict[str, str]:
    """Return the drives of ``new`` with their volumes created. If one fails, the others are removed again."""
    created: dict[str, str] = {}
    slots = {name: drives.parse(name, value) for name, value in new.items() if drives.is_slot(name)}
    try:
        for name, drive in slots.items():
            created[name] = volumes.create(node, task, vmid, name, drive)
    except BaseException:
        for name, value in created.items():
            if drives.is_new(slots[name]):
                node.storage.remove(drives.parse(name, value)["file"])
        raise
    return created


def stage_removal(node: Node, vmid: int, config: GuestConfig, names: Iterable[str]) -> None:
    """Mark options for removal, and drop their pending values."""
    for name in names:
        if name.startswith("unused") and name in config.options:
            _check_unused(config, name, vmid)
        _withdraw(node, vmid, config, name)
        if name in config.options and name not in config.deleted:
            config.deleted.append(name)


def _check_unused(config: GuestConfig, name: str, vmid: int) -> None:
    """Raise 500 if a drive or a snapshot still uses an unused disk."""
    others = {key: value for key, value in config.options.items() if key != name}
    sections = (others, config.pending, *config.snapshots.values())
    volid = drives.owned_volume(name, config.options[name], vmid)
    if volid and any(uses(GuestConfig(section), volid) for section in sections):
        raise ApiError(f"unable to delete '{volid}' - volume is still in use (snapshot?)")


def revert(node: Node, vmid: int, config: GuestConfig, names: Iterable[str]) -> None:
    """Drop pending changes of options."""
    for name in names:
        _withdraw(node, vmid, config, name)
        config.deleted = [key for key in config.deleted if key != name]


def _withdraw(node: Node, vmid: int, config: GuestConfig, name: str) -> None:
    if name in config.pending:
        _set_aside(node, vmid, config, name, config.pending.pop(name))


def apply_stopped(node: Node, vmid: int, config: GuestConfig) -> None:
    """Apply all pending changes of a stopped VM."""
    for name in list(config.deleted):
        _remove(node, vmid, config, name)
    for name in list(config.pending):
        _adopt(node, vmid, config, name)


def apply_running(node: Node, vmid: int, config: GuestConfig, changed: Collection[str]) -> dict[str, str]:
    """Apply the pending changes that a running VM accepts.

    Args:
        node: the VM's node.
        vmid: the VM.
        config: its configuration, which is changed.
        changed: the options of this call; devices are hotplugged only if they are among them.

    Returns:
        PVE's error text for each option that could not be hotplugged.
    """
    errors: dict[str, str] = {}
    for name in [*config.deleted, *config.pending]:
        if name in _NEEDS_NO_RESTART or name.startswith(("ipconfig", "unused")):
            _apply(node, vmid, config, name)
        elif re.fullmatch(r"net\d+", name) and name in changed:
            try:
                if _hotplug_nic(node, vmid, config, name):
                    _apply(node, vmid, config, name)
            except MachineError as failed:
                errors[name] = f"hotplug problem - {failed}\n"
    return errors


def _apply(node: Node, vmid: int, config: GuestConfig, name: str) -> None:
    if name in config.deleted:
        _remove(node, vmid, config, name)
    else:
        _adopt(node, vmid, config, name)


def _adopt(node: Node, vmid: int, config: GuestConfig, name: str) -> None:
    value = config.pending.pop(name)
    old = config.options.get(name)
    config.options[name] = value
    if old is not None:
        _set_aside(node, vmid, config, name, old)


def _remove(node: Node, vmid: int, config: GuestConfig, name: str) -> None:
    config.deleted.remove(name)
    old = config.options.pop(name, None)
    if old is None:
        return
    if not name.startswith("unused"):
        _set_aside(node, vmid, config, name, old)
    elif volid := drives.owned_volume(name, old, vmid):
        node.storage.remove(volid)


def _set_aside(node: Node, vmid: int, config: GuestConfig, name: str, old: str) -> None:
    """Handle the value that a drive's slot had: a disk becomes ``unusedN``, a cloud-init drive is deleted.

    A volume that belongs to another VM, or that another slot still uses, stays as it is.
    """
    volid = drives.owned_volume(name, old, vmid) if drives.is_slot(name) else None
    if volid is None:
        return
    if drives.is_cloudinit(drives.parse(name, old)) and not uses(config, volid):
        node.storage.remove(volid)
    else:
        keep_unused(config, [volid])


def keep_unused(config: GuestConfig, volids: Iterable[str]) -> None:
    """Add ``unusedN`` options for a VM's own volumes that no drive uses."""
    for volid in volids:
        if not uses(config, volid):
            number = next(n for n in range(256) if f"unused{n}" not in config.options)
            config.options[f"unused{number}"] = volid


def uses(config: GuestConfig, volid: str) -> bool:
    """Return whether a current, pending or unused drive is this volume (with or without its base's name)."""
    options = [*config.options.items(), *config.pending.items()]
    files = [drives.parse(k, v)["file"] for k, v in options if drives.is_slot(k) or k.startswith("unused")]
    used = {
        (volume.vmid, volume.name)
        for volume in (drives.parse_volume_id(file) for file in files if ":" in file)
    }
    volume = drives.parse_volume_id(volid)
    return (volume.vmid, volume.name) in used


def _hotplug_nic(node: Node, vmid: int, config: GuestConfig, name: str) -> bool:
    """Change a NIC of the running VM; False if the change has to wait for a restart."""
    old, new = config.options.get(name), None if name in config.deleted else config.pending[name]
    if not _hotplugs_network(config.options) and _plugs_anew(old, new):
        return False
    machines.change_nic(node, vmid, int(name[3:]), old, new)
    return True


def _plugs_anew(old: str | None, new: str | None) -> bool:
    return old is None or new is None or nics.needs_new_device(nics.parse(old), nics.parse(new))


def _hotplugs_network(current: dict[str, str]) -> bool:
    features = current.get("hotplug", _DEFAULT_HOTPLUG)
    return "network" in split_list(_DEFAULT_HOTPLUG if features == "1" else features)
