"""Containers: list, create, destroy, clone, convert to a template, resize."""

from __future__ import annotations

from typing import Any

from minipve.access import rights
from minipve.api.nodes.lxc.status import start_in_task
from minipve.api.routing import CT, check_first, route
from minipve.base.errors import ApiError, parameter_error
from minipve.config import container_nics, volume_ids
from minipve.config.rules.validate import MISSING
from minipve.config.store import GuestConfig
from minipve.guests import shared
from minipve.guests.container import lifecycle, options, summary
from minipve.guests.lxc import running, support, user_ids
from minipve.guests.qemu import cloudinit
from minipve.network import veths
from minipve.node.call import Call
from minipve.node.tasks import Task

_CONTROL = {
    "bwlimit", "force", "ha-managed", "ignore-unpack-errors", "ostemplate", "password", "pool", "restore",
    "ssh-public-keys", "start", "storage", "unique", "unprivileged",
}  # fmt: skip


@route("GET", "/nodes/{node}/lxc")
def index(call: Call) -> list[dict[str, Any]]:
    """Return the containers that the caller may see, with their current state."""
    visible = [(i, c) for i, c in call.node.containers.all() if call.permit.has(f"/vms/{i}", ["VM.Audit"])]
    return [summary.row(call.node, vmid, config) for vmid, config in visible]


@check_first("POST", "/nodes/{node}/lxc")
def check_create(call: Call) -> None:
    """Check that the caller may create the container. The checks of its volumes follow."""
    vmid, pool, permit = call.vmid, call.get("pool"), call.permit
    if not call.get("unprivileged", 1):
        permit.need_right(rights.HOST_IDS)
    if call.get("ha-managed"):
        permit.need_right(rights.HA)
    call.node.containers.check_free(vmid)
    cloudinit.check_key_lines(str(call.get("ssh-public-keys", "")))
    shared.check_pool(call.node, pool)
    shared.check_allocate(permit, vmid, pool)
    params = {key: str(value) for key, value in call.options.items() if key not in _CONTROL}
    options.check(permit, vmid, pool, params, {"unprivileged": str(call.get("unprivileged", 1))})


@route("POST", "/nodes/{node}/lxc")
def create(call: Call) -> str:
    """Create a container (task ``vzcreate``). The VMID is reserved at once; the task unpacks the template."""
    vmid = call.vmid
    for name in ("restore", "force", "ha-managed"):
        if call.get(name):
            raise parameter_error(**{name: "not supported here"})
    params = {key: str(value) for key, value in call.options.items() if key not in _CONTROL}
    options.refuse(params)
    rootfs = params.pop("rootfs", None) or _default_rootfs(call)
    new = lifecycle.CreateRequest(
        archive=call["ostemplate"],
        rootfs_bytes=options.new_rootfs_bytes(rootfs),
        password=call.get("password", ""),
        ssh_keys=str(call.get("ssh-public-keys", "")),
        pool=call.get("pool"),
    )
    basis = {"unprivileged": "1"} if call.get("unprivileged", 1) else {}
    config = {"hostname": f"CT{vmid}", "memory": "512", "swap": "512"} | options.normalise(params) | basis
    for index, nic in container_nics.of_config(config).items():
        veths.check_mtu(index, nic)
    support.require()
    if basis:
        user_ids.require_namespaces()
    call.node.containers.create(vmid, "create")

    def work(task: Task) -> None:
        lifecycle.create(call.node, task, vmid, config, new)
        if call.get("start"):
            call.start_guest(task, start_in_task)

    return call.start("vzcreate", vmid, work)


def _default_rootfs(call: Call) -> str:
    """Return the default root file system."""
    store = call.get("storage", volume_ids.STORAGE)
    volume_ids.check_exists(store)
    call.permit.need_right(rights.DISK_SPACE, storage=store)
    return f"{store}:{options.DEFAULT_ROOTFS_GIB}"


@route("DELETE", CT)
def destroy(call: Call) -> str:
    """Remove a container with its files (task ``vzdestroy``)."""
    vmid, force = call.vmid, bool(call.get("force"))
    config = call.node.containers.load_or_empty(vmid)
    if config.options.get("protection") == "1":
        raise ApiError(f"can't remove CT {vmid} - protection mode enabled")
    config.check_lock()
    if running.init_pid(vmid, call.node.paths) and not force:
        raise ApiError(f"unable to destroy CT {vmid} - container is running")
    purge = bool(call.get("purge"))
    return call.start("vzdestroy", vmid, lambda task: lifecycle.destroy(call.node, task, vmid, force, purge))


@route("POST", f"{CT}/clone")
def clone(call: Call) -> str:
    """Create a full copy of a stopped container (task ``vzclone``)."""
    shared.check_pool(call.node, call.get("pool"))
    if store := call.get("storage"):
        volume_ids.check_exists(store)
    to_other_node = shared.is_elsewhere(call.node, call.get("target"))
    if to_other_node and store:
        raise ApiError(f"can't clone to non-shared storage '{store}'")
    source = call.node.containers.load(call.vmid)
    source.check_lock()
    call.node.containers.check_free(call["newid"])
    _check_copy(call, source)
    if to_other_node:
        raise ApiError(f"can't clone CT to node '{call['target']}' (CT uses local storage)")
    call.node.containers.create(call["newid"], "clone")
    attributes = {key: call.get(key) for key in ("hostname", "description", "pool")}
    request = lifecycle.ContainerCloneRequest(call.vmid, call["newid"], **attributes)
    return call.start("vzclone", call.vmid, lambda task: lifecycle.clone(call.node, task, request))


def _check_copy(call: Call, source: GuestConfig) -> None:
    """Raise PVE's errors, in its order, when the container cannot be copied."""
    full = call.get("full", not source.is_template)
    if "storage" in call.params and not full:
        raise ApiError("parameter 'storage' not allowed for linked clones")
    if "snapname" in call.params:
        raise ApiError(f"snapshot '{call['snapname']}' does not exist")
    for nic in container_nics.of_config(source.options).values():
        shared.check_bridge(call.permit, nic.bridge, nic.tag)
    call.permit.need_right(rights.DISK_SPACE, storage=volume_ids.STORAGE)
    if not full:
        volid = options.rootfs_volume(source.options)
        raise ApiError(f"Linked clone feature for '{volid}' is not available")
    if running.init_pid(call.vmid, call.node.paths):
        raise ApiError("Full clone of a running container is only possible from a snapshot")


@route("POST", f"{CT}/template")
def template(call: Call) -> None:
    """Convert a stopped container to a template, without a task."""
    lifecycle.make_template(call.node, call.vmid)


@route("PUT", f"{CT}/resize")
def resize(call: Call) -> str:
    """Grow the root file system (task ``resize``)."""
    digest, disk = call.get("digest"), call["disk"]
    config = call.node.containers.load(call.vmid)
    config.check_lock()
    call.permit.require(f"/vms/{call.vmid}", ["VM.Config.Options"])
    config.check_digest(digest)
    if disk not in config.options:  # PVE parses a missing option as an empty text
        raise ApiError("format error", errors={"mp": MISSING, "volume": MISSING})
    call.permit.need_right(rights.DISK_SPACE, storage=volume_ids.STORAGE)
    current, text = options.rootfs_bytes(config.options), str(call["size"])
    base = current if text.startswith("+") else 0
    size = volume_ids.checked_size(volume_ids.size_bytes(text.lstrip("+")) + base)
    if size < current:
        raise ApiError("unable to shrink disk size")
    if size == current:
        raise ApiError("disk is already at specified size")
    return call.start(
        "resize", call.vmid, lambda task: lifecycle.resize(call.node, task, call.vmid, size, digest)
    )


@route("GET", f"{CT}/feature")
def feature(call: Call) -> dict[str, Any]:
    """Return whether a feature is available. Containers in folders can only be copied."""
    call.node.containers.load(call.vmid)
    return {"hasFeature": int(call["feature"] == "copy")}


@route("GET", f"{CT}/interfaces")
def interfaces(call: Call) -> list[dict[str, object]] | None:
    """Return the addresses inside a running container."""
    call.node.containers.load(call.vmid)
    return lifecycle.interfaces(call.node, call.vmid)


@route("GET", f"{CT}/snapshot")
def snapshots(call: Call) -> list[dict[str, Any]]:
    """Return only the current state, since containers in folders have no snapshots."""
    config = call.node.containers.load(call.vmid)
    alive = int(running.init_pid(call.vmid, call.node.paths) is not None)
    current = {"name": "current", "description": "You are here!"}
    return [current | {"digest": config.digest, "running": alive}]


@route("POST", f"{CT}/snapshot")
def snapshot(call: Call) -> str:
    """Start a task ``vzsnapshot`` that fails, as on a node with a directory storage."""
    call.node.containers.load(call.vmid)

    def work(task: Task) -> None:
        raise ApiError("snapshot feature is not available")

    return call.start("vzsnapshot", call.vmid, work)
