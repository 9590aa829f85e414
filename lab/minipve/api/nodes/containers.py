"""Containers: list, create, destroy, clone, resize; configuration; power and state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from minipve.access import permissions
from minipve.api.routing import CT, check_first, route
from minipve.base.errors import ApiError, parameter_error
from minipve.config import container_nics, drives
from minipve.config import values as waiting
from minipve.config.rules.formats import split_list
from minipve.config.rules.schema import LXC
from minipve.config.rules.validate import MISSING
from minipve.config.store import GuestConfig
from minipve.guests import shared
from minipve.guests.container import lifecycle, options
from minipve.guests.lxc import limits, running
from minipve.guests.qemu import cloudinit
from minipve.network import guest_ports
from minipve.node.call import Call
from minipve.node.tasks import Task

# Containers: list, create, destroy, clone, convert to a template, resize.

_CONTROL = {
    "bwlimit", "force", "ha-managed", "ignore-unpack-errors", "ostemplate", "password", "pool", "restore",
    "ssh-public-keys", "start", "storage", "unique", "unprivileged",
}  # fmt: skip


@route("GET", "/nodes/{node}/lxc")
def index(call: Call) -> list[dict[str, Any]]:
    """Return the containers that the caller may see, with their current state."""
    visible = [(i, c) for i, c in call.node.containers.all() if call.permit.has(f"/vms/{i}", ["VM.Audit"])]
    return [lifecycle.row(call.node, vmid, config) for vmid, config in visible]


@check_first("POST", "/nodes/{node}/lxc")
def check_create(call: Call) -> None:
    """Check that the caller may create the container. The checks of its volumes follow."""
    vmid, pool, permit = call.vmid, call.get("pool"), call.permit
    if not call.get("unprivileged", 1):
        permit.need_right(permissions.HOST_IDS)
    if call.get("ha-managed"):
        permit.need_right(permissions.HA)
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
        guest_ports.check_mtu(index, nic)
    limits.require()
    if basis:
        limits.require_namespaces()
    call.node.containers.create(vmid, "create")

    def work(task: Task) -> None:
        lifecycle.create(call.node, task, vmid, config, new)
        if call.get("start"):
            call.start_guest(task, start_in_task)

    return call.start("vzcreate", vmid, work)


def _default_rootfs(call: Call) -> str:
    """Return the default root file system."""
    store = call.get("storage", drives.STORAGE)
    drives.check_exists(store)
    call.permit.need_right(permissions.DISK_SPACE, storage=store)
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
        drives.check_exists(store)
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
    call.permit.need_right(permissions.DISK_SPACE, storage=drives.STORAGE)
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
    call.permit.need_right(permissions.DISK_SPACE, storage=drives.STORAGE)
    current, text = options.rootfs_bytes(config.options), str(call["size"])
    base = current if text.startswith("+") else 0
    size = drives.checked_size(drives.size_bytes(text.lstrip("+")) + base)
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


# A container's configuration: read, change (without a task), pending changes.

_CONFIG_CONTROL = {"delete", "revert", "digest"}


@route("GET", f"{CT}/config")
def read(call: Call) -> dict[str, Any]:
    """Return the configuration of the next start, or with ``current`` the current one."""
    config = call.node.containers.load(call.vmid)
    if "snapshot" in call.params:
        raise ApiError(f"snapshot '{call['snapshot']}' does not exist")
    chosen = config.options if call.get("current") else config.merged()
    return {key: waiting.api_value(key, value, LXC) for key, value in chosen.items()} | {
        "digest": config.digest
    }


@route("GET", f"{CT}/pending")
def pending(call: Call) -> list[dict[str, Any]]:
    """Return current and pending values."""
    return waiting.rows(call.node.containers.load(call.vmid))


@check_first("PUT", f"{CT}/config")
def check_update(call: Call) -> None:
    """Raise the errors that PVE reports before it checks volumes and takes the lock."""
    deleted, reverted, new_options = _requested(call)
    if not new_options and not deleted and not reverted:
        raise ApiError("no options specified")
    config = call.node.containers.load(call.vmid)
    config.check_lock()
    config.check_digest(call.get("digest"))
    options.check(call.permit, call.vmid, None, {}, config.options, [*deleted, *reverted])
    for name in reverted:
        waiting.check_exists(name, LXC, "revert")
        if name in new_options:
            raise parameter_error(revert=f"you can't use '-{name}' and '-revert {name}' at the same time")
    for name in deleted:
        waiting.check_exists(name, LXC, "delete")
        if name in new_options:  # the missing quote is PVE's
            raise parameter_error(delete=f"you can't use '-{name}' and -delete {name}' at the same time")
        if name in reverted:
            text = f"you can't use '-delete {name}' and '-revert {name}' at the same time"
            raise parameter_error(delete=text)
    options.check(call.permit, call.vmid, None, new_options, config.options)


def _requested(call: Call) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the names to delete, the names to revert, and the options to set."""
    deleted, reverted = (split_list(call.get(name, "")) for name in ("delete", "revert"))
    return deleted, reverted, {k: str(v) for k, v in call.options.items() if k not in _CONFIG_CONTROL}


@route("PUT", f"{CT}/config")
def update(call: Call) -> None:
    """Change options. Waits for the container's lock and for hot-plugging."""
    deleted, reverted, new_options = _requested(call)
    options.refuse(new_options)
    vmid, store = call.vmid, call.node.containers
    with store.locked(vmid):
        config = store.load(vmid)
        config.check_digest(call.get("digest"))
        config.check_lock()
        options.check_deletions(deleted, config)
        options.check_changes(new_options, config.options)
        options.stage(config, options.normalise(new_options), deleted, reverted)
        errors = options.apply(call.node, vmid, config, Task("", Path(os.devnull)).log)
        store.save(vmid, config)
    if errors:
        raise ApiError("Parameter verification failed.", 400, errors)
    for index, nic in container_nics.of_config(config.options).items():
        guest_ports.check_bridge(index, nic)


# Power of containers: start, stop, shutdown and reboot as tasks, and the current state.

_SHUTDOWN_S = 60


@route("GET", f"{CT}/status/current")
def current(call: Call) -> dict[str, Any]:
    return lifecycle.status(call.node, call.vmid, call.node.containers.load(call.vmid))


def _runs(call: Call) -> bool:
    return running.init_pid(call.vmid, call.node.paths) is not None


def _check_running(call: Call, word: str = "CT") -> None:
    if not _runs(call):
        raise ApiError(f"{word} {call.vmid} not running")


@route("POST", f"{CT}/status/start")
def start(call: Call) -> str:
    """Start the container (task ``vzstart``)."""
    call.permit.need_root_option("skiplock", call.params)
    if _runs(call):
        raise ApiError(f"CT {call.vmid} already running")
    return start_in_task(call)


def start_in_task(call: Call) -> str:
    """Start the container in a task of its own (``vzstart``)."""
    skiplock = bool(call.get("skiplock"))
    return call.start(
        "vzstart", call.vmid, lambda task: lifecycle.start(call.node, task, call.vmid, skiplock)
    )


@route("POST", f"{CT}/status/stop")
def stop(call: Call) -> str:
    """End the container immediately (task ``vzstop``)."""
    call.permit.need_root_option("skiplock", call.params)
    _check_running(call)

    def work(task: Task) -> None:
        if call.get("overrule-shutdown"):
            for upid in call.node.tasks.running("vzshutdown", str(call.vmid)):
                call.node.tasks.interrupt(upid)
        lifecycle.stop(call.node, call.vmid, bool(call.get("skiplock")))

    return call.start("vzstop", call.vmid, work)


@route("POST", f"{CT}/status/shutdown")
def shutdown(call: Call) -> str:
    """Shut the container down (task ``vzshutdown``)."""
    _check_running(call)
    timeout_s, force = call.get("timeout", _SHUTDOWN_S), bool(call.get("forceStop"))
    return call.start(
        "vzshutdown", call.vmid, lambda task: lifecycle.shutdown(call.node, task, call.vmid, timeout_s, force)
    )


@route("POST", f"{CT}/status/reboot")
def reboot(call: Call) -> str:
    """Shut the container down and start it again (task ``vzreboot``)."""
    _check_running(call, "VM")  # PVE's word here

    def work(task: Task) -> None:
        lifecycle.shutdown(call.node, task, call.vmid, call.get("timeout", _SHUTDOWN_S), False)
        lifecycle.start(call.node, task, call.vmid)

    return call.start("vzreboot", call.vmid, work)


@route("POST", f"{CT}/status/suspend")
def suspend(call: Call) -> str:
    """Start a task ``vzsuspend`` that fails, since containers cannot be suspended to disk here."""
    _check_running(call)
    return call.start("vzsuspend", call.vmid, _refuse("suspend"))


@route("POST", f"{CT}/status/resume")
def resume(call: Call) -> str:
    """Start a task ``vzresume`` that fails, since no container is suspended."""
    return call.start("vzresume", call.vmid, _refuse("resume"))


def _refuse(verb: str) -> Any:
    def work(task: Task) -> None:
        raise ApiError(f"{verb} of containers is not supported here")

    return work
