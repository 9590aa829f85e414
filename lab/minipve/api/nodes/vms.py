"""VMs: list, create, destroy, clone, resize; configuration and cloud-init data."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from minipve.access import permissions
from minipve.api.nodes.vm_power import start_in_task
from minipve.api.routing import VM, check_first, route
from minipve.base.errors import ApiError, parameter_error
from minipve.config import drives, nics
from minipve.config import values as waiting
from minipve.config.rules.formats import split_list
from minipve.config.rules.validate import MISSING
from minipve.config.store import GuestConfig
from minipve.guests import shared
from minipve.guests.qemu import cloudinit
from minipve.guests.vm import changes, lifecycle, machines, options, snapshots, summary
from minipve.node.call import Call
from minipve.node.tasks import Task

# VMs: list, create, destroy, clone, convert to a template, resize a disk.

_NOT_OPTIONS = {
    "archive",
    "force",
    "storage",
    "unique",
    "pool",
    "bwlimit",
    "start",
    "live-restore",
    "ha-managed",
}
_CLONE_ATTRIBUTES = ("name", "description", "pool", "snapname")


@route("GET", "/nodes/{node}/qemu")
def index(call: Call) -> list[dict[str, Any]]:
    """Return the VMs that the caller may see, with their current state."""
    visible = [(i, c) for i, c in call.node.vms.all() if call.permit.has(f"/vms/{i}", ["VM.Audit"])]
    return [summary.vm(call.node, vmid, config) for vmid, config in visible]


@check_first("POST", "/nodes/{node}/qemu")
def check_create(call: Call) -> None:
    """Check that the caller may create the VM. The checks of its volumes and options follow."""
    vmid, pool, permit = call.vmid, call.get("pool"), call.permit
    shared.check_pool(call.node, pool)
    if store := call.get("storage"):
        permit.need_right(permissions.DISK_SPACE, storage=store)
    if call.get("ha-managed"):
        permit.need_right(permissions.HA)
    if call.get("start"):
        permit.need_vm(vmid, pool, permissions.STARTED_GUEST.privileges)
    shared.check_allocate(permit, vmid, pool)


@route("POST", "/nodes/{node}/qemu")
def create(call: Call) -> str:
    """Create a VM (task ``qmcreate``). The VMID is reserved at once; the task creates the disks."""
    vmid, pool = call.vmid, call.get("pool")
    if "archive" in call.params:
        raise ApiError("restoring from an archive is not supported by this endpoint")
    params = {key: value for key, value in call.options.items() if key not in _NOT_OPTIONS}
    options.check(call.permit, vmid, pool, params)
    if call.get("ha-managed"):
        raise parameter_error(**{"ha-managed": "not supported here"})
    config = options.normalise(params)
    options.check_values(call.permit, vmid, pool, config)
    try:
        call.node.vms.create(vmid, "create")
    except ApiError as refused:
        raise ApiError(f"unable to create VM {vmid} - {refused.message}") from None

    def work(task: Task) -> None:
        lifecycle.create(call.node, call.permit, task, vmid, config, pool)
        if call.get("start"):
            task.log("Execute autostart")
            call.start_guest(task, start_in_task)

    return call.start("qmcreate", vmid, work)


@route("DELETE", VM)
def destroy(call: Call) -> str:
    """Remove a VM with its disks (task ``qmdestroy``)."""
    vmid = call.vmid
    call.permit.need_root_option("skiplock", call.params)
    config = call.node.vms.load_or_empty(vmid)
    if config.options.get("protection") == "1":
        raise ApiError(f"can't remove VM {vmid} - protection mode enabled")
    if machines.running_pid(call.node, vmid):
        raise ApiError(f"VM {vmid} is running - destroy failed")
    unreferenced = bool(call.get("destroy-unreferenced-disks"))

    def work(task: Task) -> None:
        lifecycle.destroy(call.node, task, vmid, bool(call.get("skiplock")), unreferenced)

    return call.start("qmdestroy", vmid, work)


@route("POST", f"{VM}/template")
def template(call: Call) -> str:
    """Convert a stopped VM to a template (task ``qmtemplate``)."""
    config = call.node.vms.load(call.vmid)
    config.check_lock()
    if config.snapshots:
        raise ApiError("unable to create template, because VM contains snapshots")
    if config.is_template:
        raise ApiError("you can't convert a template to a template")
    if machines.running_pid(call.node, call.vmid):
        raise ApiError("you can't convert a VM to template if VM is running")
    return call.start(
        "qmtemplate", call.vmid, lambda task: lifecycle.make_template(call.node, task, call.vmid)
    )


@route("PUT", f"{VM}/resize")
def resize(call: Call) -> str:
    """Grow a disk (task ``resize``)."""
    call.permit.need_root_option("skiplock", call.params)
    call.node.vms.load(call.vmid)
    slot, size, digest = call["disk"], call["size"], call.get("digest")

    def work(task: Task) -> None:
        lifecycle.resize(call.node, call.permit, task, call.vmid, slot, size, digest)

    return call.start("resize", call.vmid, work)


@route("POST", f"{VM}/move_disk")
def move(call: Call) -> str:
    """Refuse every move, with PVE's text if it has one, since there is one storage of one format."""
    config = call.node.vms.load(call.vmid)
    config.check_lock()
    if "target-vmid" in call.params:
        raise parameter_error(**{"target-vmid": "moving a disk to another VM is not supported here"})
    if "storage" not in call.params:
        raise parameter_error(storage=MISSING)
    drives.check_exists(call["storage"])
    call.permit.need_right(permissions.DISK_SPACE, storage=drives.STORAGE)
    if call["disk"] not in config.options:
        raise ApiError(f"disk '{call['disk']}' does not exist")
    if drives.is_cdrom(drives.parse(call["disk"], config.options[call["disk"]])):
        raise ApiError("you can't move a cdrom")
    if call.get("format", "qcow2") != "qcow2":
        raise parameter_error(format=f"'{call['format']}' is not supported here, only qcow2")
    raise ApiError("you can't move to the same storage with same format")


@route("POST", f"{VM}/clone")
def clone(call: Call) -> str:
    """Copy a VM (task ``qmclone``). Clones of a template are linked unless ``full``."""
    source = call.node.vms.load(call.vmid)
    source.check_lock()
    full = bool(call.get("full", not source.is_template))
    _check_clone(call, source, full)
    try:
        call.node.vms.create(call["newid"], "clone")
    except ApiError as refused:
        exists = "already exists" in refused.message
        text = "config file already exists" if exists else refused.message
        raise ApiError(f"unable to create VM {call['newid']}: {text}") from None
    attributes = {key: call.get(key) for key in _CLONE_ATTRIBUTES}
    request = lifecycle.CloneRequest(call.vmid, call["newid"], full, **attributes)
    return call.start("qmclone", call.vmid, lambda task: lifecycle.clone(call.node, task, request))


def _check_clone(call: Call, source: GuestConfig, full: bool) -> None:
    shared.check_pool(call.node, call.get("pool"))
    if shared.is_elsewhere(call.node, call.get("target")):
        raise ApiError(f"can't clone VM to node '{call['target']}' (VM uses local storage)")
    snapname = call.get("snapname")
    source_options = source.options if snapname is None else snapshots.existing(source, snapname)
    if not full:
        for name in ("storage", "format"):
            if name in call.params:
                raise ApiError(f"parameter '{name}' not allowed for linked clones")
        if not source.is_template:
            raise parameter_error(full="Linked clone feature is only possible for templates")
    if call.get("format", "qcow2") != "qcow2":
        raise parameter_error(format=f"'{call['format']}' is not supported here, only qcow2")
    for key, value in source_options.items():
        if re.fullmatch(r"net\d+", key):
            nic = nics.parse(value)
            shared.check_bridge(call.permit, nic.bridge, nic.tag)
    if any(":" in drive["file"] for _, drive in drives.of(source_options)):
        target = call.get("storage", drives.STORAGE)
        drives.check_exists(target)
        call.permit.need_right(permissions.DISK_SPACE, storage=target)


# A VM's configuration: read, change (with or without a task), pending changes, cloud-init data.

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
            call.permit.need_right(permissions.DISK_SPACE, storage=drives.STORAGE)


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
