"""A VM's configuration: read, change (with or without a task), pending changes, cloud-init data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from minipve.access import rights
from minipve.api.routing import VM, route
from minipve.base.errors import ApiError
from minipve.config import drives, volume_ids
from minipve.config import pending as waiting
from minipve.config.rules.formats import split_list
from minipve.config.store import GuestConfig
from minipve.guests import shared
from minipve.guests.qemu import cloudinit
from minipve.guests.vm import changes, machines, options, snapshots
from minipve.node.call import Call
from minipve.node.tasks import Task

_CONTROL = {
    "delete",
    "revert",
    "digest",
    "force",
    "skiplock",
    "background_delay",
    "bwlimit",
    "import-working-storage",
}
_CLOUDINIT = (
    "cicustom",
    "cipassword",
    "ciuser",
    "ciupgrade",
    "nameserver",
    "searchdomain",
    "sshkeys",
    "name",
)


@route("GET", f"{VM}/config")
def read(call: Call) -> dict[str, Any]:
    """Return the configuration of the next start, or with ``current`` the current one."""
    config = call.node.vms.load(call.vmid)
    if "snapshot" in call.params:
        chosen = snapshots.existing(config, call["snapshot"])
    else:
        chosen = config.options if call.get("current") else config.merged()
    return {key: waiting.api_value(key, value) for key, value in chosen.items()} | {"digest": config.digest}


@route("GET", f"{VM}/pending")
def pending(call: Call) -> list[dict[str, Any]]:
    """Return current and pending values."""
    return waiting.rows(call.node.vms.load(call.vmid))


@route("PUT", f"{VM}/config")
def update(call: Call) -> None:
    """Change options. Waits for the VM's lock and for hot-plugging."""
    _prepare(call)
    _change(call, Task("", Path(os.devnull)))


@route("POST", f"{VM}/config")
def update_async(call: Call) -> str:
    """Change options in a task (``qmconfig``)."""
    _prepare(call)

    def work(task: Task) -> None:
        words = [f"-{key} {_hidden(key, value)}" for key, value in sorted(call.options.items())]
        task.log(f"update VM {call.vmid}: {' '.join(words)}")
        _change(call, task)

    return call.start("qmconfig", call.vmid, work)


def _hidden(key: str, value: Any) -> Any:
    return "<hidden>" if key == "cipassword" else value


def _changed_options(call: Call) -> dict[str, str]:
    params = {key: value for key, value in call.options.items() if key not in _CONTROL}
    if "cipassword" in params:
        params["cipassword"] = options.hash_password(str(params["cipassword"]))
    return options.normalise(params)


def _names(call: Call, parameter: str) -> list[str]:
    """Return the options in the list ``delete`` or ``revert``."""
    return ["ide2" if name == "cdrom" else name for name in split_list(call.get(parameter, ""))]


def _prepare(call: Call) -> None:
    """Raise the errors that PVE reports before it takes the lock or starts a task."""
    call.permit.need_root_option("skiplock", call.params)
    deleted, reverted = _names(call, "delete"), _names(call, "revert")
    changed = [key for key in call.options if key not in _CONTROL]
    if not changed and not deleted and not reverted:
        raise ApiError("no options specified")
    waiting.check_deletable([*deleted, *reverted])
    for name in set(changed) & set(deleted):
        text = f"Cannot use '-{name}' and '-delete {name}' at the same time"
        raise ApiError("Parameter verification failed.", 400, {"delete": text})
    options.check_hookscript(call.node.storage, call.get("hookscript"))
    options.check(call.permit, call.vmid, None, [*changed, *deleted, *reverted])
    options.check_values(call.permit, call.vmid, None, _changed_options(call), verb="modify")
    if "tags" in {*changed, *deleted}:
        shared.check_tags(call.permit, call.vmid)
    config = call.node.vms.load(call.vmid)
    _check_dropped_drives(call, config, [*deleted, *reverted])
    config.check_digest(call.get("digest"))
    if not call.get("skiplock"):
        config.check_lock()


def _check_dropped_drives(call: Call, config: GuestConfig, names: list[str]) -> None:
    """Raise 403 unless the caller may remove these drives, or delete these unused disks."""
    for name in names:
        for value in (config.options.get(name), config.pending.get(name)):
            if value is not None and (drives.is_slot(name) or name.startswith("unused")):
                options.check_drive(call.permit, call.vmid, None, drives.parse(name, value))
        if name.startswith("unused"):
            call.permit.need_right(rights.DISK_SPACE, storage=volume_ids.STORAGE)


def _change(call: Call, task: Task) -> None:
    node, vmid = call.node, call.vmid
    with node.vms.locked(vmid):
        config = node.vms.load(vmid)
        config.check_digest(call.get("digest"))
        if not call.get("skiplock"):
            config.check_lock()
        changes.revert(node, vmid, config, _names(call, "revert"))
        changes.stage_removal(node, vmid, config, _names(call, "delete"))
        changes.stage(node, task, vmid, config, _changed_options(call))
        node.vms.save(vmid, config)
        errors = _apply(call, vmid, config)
        node.vms.save(vmid, config)
    if errors:
        raise ApiError("Parameter verification failed.", 400, errors)


def _apply(call: Call, vmid: int, config: GuestConfig) -> dict[str, str]:
    if machines.running_pid(call.node, vmid):
        names = _names(call, "delete") + _names(call, "revert")
        return changes.apply_running(call.node, vmid, config, {*call.options, *names})
    changes.apply_stopped(call.node, vmid, config)
    return {}


@route("PUT", f"{VM}/unlink")
def unlink(call: Call) -> None:
    """Remove drives from their slots. With ``force`` delete their volumes, too."""
    names = split_list(call["idlist"])
    waiting.check_deletable(names)
    with call.node.vms.changing(call.vmid) as config:
        config.check_lock()
        _check_dropped_drives(call, config, names)
        if machines.running_pid(call.node, call.vmid):
            raise ApiError(f"VM {call.vmid} is running - unplug drives of a stopped VM")
        owned = dict(drives.volumes(config.options, call.vmid))
        changes.stage_removal(call.node, call.vmid, config, names)
        changes.apply_stopped(call.node, call.vmid, config)
        if call.get("force"):
            volumes = {owned[name] for name in names if name in owned}
            unused = [k for k, v in config.options.items() if k.startswith("unused") and v in volumes]
            changes.stage_removal(call.node, call.vmid, config, unused)
            changes.apply_stopped(call.node, call.vmid, config)


@route("GET", f"{VM}/cloudinit")
def cloudinit_options(call: Call) -> list[dict[str, Any]]:
    """Return the cloud-init options. They apply from the next start."""
    chosen = call.node.vms.load(call.vmid).options
    keys = [k for k in sorted(chosen) if k in _CLOUDINIT or k.startswith("ipconfig")]
    return [{"key": key, "value": waiting.api_value(key, chosen[key])} for key in keys]


@route("PUT", f"{VM}/cloudinit")
def regenerate(call: Call) -> None:
    """Write the cloud-init drive again."""
    with call.node.vms.locked(call.vmid):
        config = call.node.vms.load(call.vmid)
        config.check_lock()
        cloudinit.build(call.vmid, config.options, call.node.paths)


@route("GET", f"{VM}/cloudinit/dump")
def dump(call: Call) -> str:
    """Return the generated user-data, network-config or meta-data."""
    return cloudinit.dump(call.vmid, call.node.vms.load(call.vmid).options, call["type"])
