"""Changes of a VM's configuration: what is written at once, what reaches a running machine, what waits.

The rules are PVE's (qemu-server, ``vmconfig_hotplug_pending``): every change first becomes pending; then,
on a stopped VM, all of it is applied, and on a running one what needs no restart.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from minipve.config import drives, nics
from minipve.config.formats import split_list
from minipve.config.store import GuestConfig
from minipve.errors import ApiError
from minipve.image import storage
from minipve.node import Node
from minipve.process import MachineError
from minipve.tasks import Task
from minipve.vm import machines, volumes

_AT_ONCE = {
    "autostart", "description", "hookscript", "hotplug", "lock", "migrate_downtime", "migrate_speed", "name",
    "onboot", "protection", "shares", "startup", "tags", "vmstatestorage",
    "cicustom", "cipassword", "citype", "ciuser", "ciupgrade", "nameserver", "searchdomain", "sshkeys",
}  # fmt: skip
_DEFAULT_HOTPLUG = "network,disk,usb"


def stage(node: Node, task: Task, vmid: int, config: GuestConfig, wanted: dict[str, str]) -> None:
    """Make the volumes of new drives and put everything into the pending section."""
    made = _make_volumes(node, task, vmid, wanted)
    for name, value in (wanted | made).items():
        config.deleted = [key for key in config.deleted if key != name]
        _withdraw(node, vmid, config, name)
        if config.options.get(name) != value:
            config.pending[name] = value


def _make_volumes(node: Node, task: Task, vmid: int, wanted: dict[str, str]) -> dict[str, str]:
    """The drives of ``wanted`` with their volumes made; all of them or none."""
    made: dict[str, str] = {}
    slots = {name: drives.parse(name, value) for name, value in wanted.items() if drives.is_slot(name)}
    try:
        for name, drive in slots.items():
            made[name] = volumes.create(node, task, vmid, name, drive)
    except BaseException:
        for name, value in made.items():
            if drives.is_new(slots[name]):
                node.storage.remove(drives.parse(name, value)["file"])
        raise
    return made


def stage_removal(node: Node, vmid: int, config: GuestConfig, names: Iterable[str]) -> None:
    """Mark options for removal; what was only pending is dropped."""
    for name in names:
        if name.startswith("unused") and name in config.options:
            _require_unused(config, name, vmid)
        _withdraw(node, vmid, config, name)
        if name in config.options and name not in config.deleted:
            config.deleted.append(name)


def _require_unused(config: GuestConfig, name: str, vmid: int) -> None:
    """500 when an unused disk is one that a drive or a snapshot still has."""
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
    """Everything pending comes into force."""
    for name in list(config.deleted):
        _remove(node, vmid, config, name)
    for name in list(config.pending):
        _adopt(node, vmid, config, name)


def apply_running(node: Node, vmid: int, config: GuestConfig, changed: Collection[str]) -> dict[str, str]:
    """What a running machine takes comes into force; returns PVE's text for each option that failed to.

    Devices are tried only when they are among the options that this call ``changed``.
    """
    errors: dict[str, str] = {}
    for name in [*config.deleted, *config.pending]:
        if name in _AT_ONCE or name.startswith(("ipconfig", "unused")):
            _settle(node, vmid, config, name)
        elif re.fullmatch(r"net\d+", name) and name in changed:
            try:
                if _plug(node, vmid, config, name):
                    _settle(node, vmid, config, name)
            except MachineError as failed:
                errors[name] = f"hotplug problem - {failed}\n"
    return errors


def _settle(node: Node, vmid: int, config: GuestConfig, name: str) -> None:
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
    """What was in a drive's slot: the VM's own disk becomes ``unusedN``, its cloud-init drive is freed.

    A volume that is not the VM's own, or that another slot still names, is left alone: it is not deleted for
    having been named here.
    """
    volid = drives.owned_volume(name, old, vmid) if drives.is_slot(name) else None
    if volid is None:
        return
    if drives.is_cloudinit(drives.parse(name, old)) and not uses(config, volid):
        node.storage.remove(volid)
    else:
        keep_unused(config, [volid])


def keep_unused(config: GuestConfig, volids: Iterable[str]) -> None:
    """Note a VM's own volumes as ``unusedN`` unless a drive has them."""
    for volid in volids:
        if not uses(config, volid):
            free = next(n for n in range(256) if f"unused{n}" not in config.options)
            config.options[f"unused{free}"] = volid


def uses(config: GuestConfig, volid: str) -> bool:
    """Whether any drive, unused or pending ones included, is this volume, however it is spelt."""
    named = [*config.options.items(), *config.pending.items()]
    files = [drives.parse(k, v)["file"] for k, v in named if drives.is_slot(k) or k.startswith("unused")]
    wanted = storage.parse(volid)
    found = (storage.parse(file) for file in files if ":" in file)
    return any((one.vmid, one.name) == (wanted.vmid, wanted.name) for one in found)


def _plug(node: Node, vmid: int, config: GuestConfig, name: str) -> bool:
    """Carry a NIC's change to the running machine; False when it has to wait for a restart."""
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
