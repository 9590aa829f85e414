"""VMs: list, create, destroy, clone, convert to a template, resize a disk."""

from __future__ import annotations

import re
from typing import Any

from minipve.access import rights
from minipve.api.nodes.qemu.status import start_in_task
from minipve.api.routing import VM, check_first, route
from minipve.base.errors import ApiError, parameter_error
from minipve.config import drives, nics, volume_ids
from minipve.config.rules.validate import MISSING
from minipve.config.store import GuestConfig
from minipve.guests import shared
from minipve.guests.vm import lifecycle, machines, options, snapshots, summary
from minipve.node.call import Call
from minipve.node.tasks import Task

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
        permit.need_right(rights.DISK_SPACE, storage=store)
    if call.get("ha-managed"):
        permit.need_right(rights.HA)
    if call.get("start"):
        permit.need_vm(vmid, pool, rights.STARTED_GUEST.privileges)
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
    volume_ids.check_exists(call["storage"])
    call.permit.need_right(rights.DISK_SPACE, storage=volume_ids.STORAGE)
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
        target = call.get("storage", volume_ids.STORAGE)
        volume_ids.check_exists(target)
        call.permit.need_right(rights.DISK_SPACE, storage=target)
