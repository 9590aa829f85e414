"""Containers: list, create, destroy, clone, convert to a template, resize, what is known of one."""

from __future__ import annotations

from typing import Any

from lab.minipve import guests
from lab.minipve.api import CT, route
from lab.minipve.config import veths
from lab.minipve.config.store import GuestConfig
from lab.minipve.container import ids, lxc, running
from lab.minipve.ct import lifecycle, options, summary
from lab.minipve.errors import ApiError, parameter_error
from lab.minipve.image import storage
from lab.minipve.machine import seed
from lab.minipve.network import veths as plugs
from lab.minipve.node import Call
from lab.minipve.tasks import Task

_CONTROL = {
    "bwlimit", "force", "ha-managed", "ignore-unpack-errors", "ostemplate", "password", "pool", "restore",
    "rootfs", "ssh-public-keys", "start", "storage", "unique",
}  # fmt: skip


@route("GET", "/nodes/{node}/lxc")
def index(call: Call) -> list[dict[str, Any]]:
    """The containers that the caller may see, with their live state."""
    seen = [(i, c) for i, c in call.node.containers.all() if call.permit.has(f"/vms/{i}", ["VM.Audit"])]
    return [summary.row(call.node, vmid, config) for vmid, config in seen]


@route("GET", CT)
def directory(call: Call) -> list[dict[str, str]]:
    """The names below a container, as the API viewer's tree has them."""
    names = "config", "pending", "status", "clone", "rrddata", "snapshot", "resize", "interfaces"
    return [{"subdir": name} for name in names]


@route("POST", "/nodes/{node}/lxc")
def create(call: Call) -> str:
    """A new container (task ``vzcreate``); the VMID is taken at once, its tree is made by the task."""
    vmid, pool = call.vmid, call.get("pool")
    for name in ("restore", "force"):
        if call.get(name):
            raise parameter_error(**{name: "not supported here"})
    given = {key: value for key, value in call.options.items() if key not in _CONTROL}
    unprivileged = call.get("unprivileged", 1)
    if not unprivileged:
        call.permit.need("/", ["Sys.Modify"])
    guests.check_pool(call.node, pool)
    guests.check_allocate(call.permit, vmid, pool)
    rootfs = call.get("rootfs", f"{call.get('storage', storage.NAME)}:{options.DEFAULT_ROOTFS_GIB}")
    basis = {"unprivileged": "1"} if unprivileged else {}
    asked = {key: str(value) for key, value in given.items() if key != "unprivileged"} | {"rootfs": rootfs}
    options.check(call.permit, vmid, pool, asked, basis)
    new = lifecycle.New(
        call["ostemplate"], options.wanted_size(rootfs), call.get("password", ""), _keys(call), pool
    )
    wanted = options.normalise({key: value for key, value in asked.items() if key != "rootfs"}) | basis
    wanted = {"hostname": f"CT{vmid}", "memory": "512", "swap": "512"} | wanted
    _require(call, wanted)
    call.node.containers.create(vmid, "create")

    def work(task: Task) -> None:
        lifecycle.create(call.node, call.permit, task, vmid, wanted, new)
        if call.get("start"):
            lifecycle.start(call.node, task, vmid)

    return call.start("vzcreate", vmid, work)


def _keys(call: Call) -> str:
    keys = str(call.get("ssh-public-keys", ""))
    seed.check_key_lines(keys)
    return keys


def _require(call: Call, wanted: dict[str, str]) -> None:
    """500, with what mends it, where this machine has no such containers; for an MTU above the bridge's."""
    lxc.require()
    if wanted.get("unprivileged") == "1":
        ids.require()
    for index, nic in veths.of_config(wanted).items():
        plugs.check_mtu(index, nic)


@route("DELETE", CT)
def destroy(call: Call) -> str:
    """Remove a container with its tree (task ``vzdestroy``)."""
    vmid, force = call.vmid, bool(call.get("force"))
    config = call.node.containers.remains(vmid)
    if config.options.get("protection") == "1":
        raise ApiError(f"can't remove CT {vmid} - protection mode enabled")
    config.check_lock()
    if running.init_pid(vmid, call.node.paths) and not force:
        raise ApiError(f"unable to destroy CT {vmid} - container is running")
    purge = bool(call.get("purge"))
    return call.start("vzdestroy", vmid, lambda task: lifecycle.destroy(call.node, task, vmid, force, purge))


@route("POST", f"{CT}/clone")
def clone(call: Call) -> str:
    """Copy a stopped container completely (task ``vzclone``)."""
    source = call.node.containers.load(call.vmid)
    source.check_lock()
    guests.check_pool(call.node, call.get("pool"))
    if "snapname" in call.given:
        raise ApiError(f"snapshot '{call['snapname']}' does not exist")
    _check_clone(call, source)
    try:
        call.node.containers.create(call["newid"], "clone")
    except ApiError as refused:
        exists = "already exists" in refused.message
        text = "config file already exists" if exists else refused.message
        raise ApiError(f"unable to create CT {call['newid']}: {text}") from None
    named = {key: call.get(key) for key in ("hostname", "description", "pool")}
    wanted = lifecycle.Clone(call.vmid, call["newid"], **named)
    return call.start("vzclone", call.vmid, lambda task: lifecycle.clone(call.node, task, wanted))


def _check_clone(call: Call, source: GuestConfig) -> None:
    guests.check_target(call.node, call.get("target"), f"can't clone to non-shared storage '{storage.NAME}'")
    if not call.get("full", not source.is_template):
        volid = options.rootfs_volume(source.options)
        raise ApiError(f"Linked clone feature for '{volid}' is not available")
    if running.init_pid(call.vmid, call.node.paths):
        raise ApiError("Cannot do full clones on a running container without snapshots")
    for nic in veths.of_config(source.options).values():
        guests.check_bridge(call.permit, nic.bridge, nic.tag)
    target = call.get("storage", storage.NAME)
    storage.known(target)
    call.permit.need(f"/storage/{target}", ["Datastore.AllocateSpace"])


@route("POST", f"{CT}/template")
def template(call: Call) -> None:
    """Convert a stopped container to a template, at once."""
    lifecycle.make_template(call.node, call.vmid)


@route("PUT", f"{CT}/resize")
def resize(call: Call) -> str:
    """Grow the tree (task ``resize``)."""
    call.permit.need(f"/vms/{call.vmid}", ["VM.Config.Options"])
    call.permit.need(f"/storage/{storage.NAME}", ["Datastore.AllocateSpace"])
    config = call.node.containers.load(call.vmid)
    config.check_digest(call.get("digest"))
    if call["disk"] != "rootfs":
        raise ApiError(f"disk '{call['disk']}' does not exist")
    now, size = options.rootfs_bytes(config.options), str(call["size"])
    wanted = storage.size_bytes(size.lstrip("+")) + (now if size.startswith("+") else 0)
    wanted = storage.sane((wanted + 511) // 512 * 512)
    if wanted < now:
        raise ApiError("unable to shrink disk size")
    digest = call.get("digest")
    return call.start(
        "resize", call.vmid, lambda task: lifecycle.resize(call.node, task, call.vmid, wanted, digest)
    )


@route("GET", f"{CT}/feature")
def feature(call: Call) -> dict[str, Any]:
    """Whether a container can be copied, which it can; a folder has no snapshots and no linked clones."""
    call.node.containers.load(call.vmid)
    return {"hasFeature": int(call["feature"] == "copy")}


@route("GET", f"{CT}/interfaces")
def interfaces(call: Call) -> list[dict[str, object]] | None:
    """The addresses inside a running container."""
    call.node.containers.load(call.vmid)
    return lifecycle.interfaces(call.node, call.vmid)


@route("GET", f"{CT}/snapshot")
def snapshots(call: Call) -> list[dict[str, Any]]:
    """The present state, which every container has: there are no snapshots of folders."""
    config = call.node.containers.load(call.vmid)
    alive = int(running.init_pid(call.vmid, call.node.paths) is not None)
    here = {"name": "current", "description": "You are here!"}
    return [here | {"digest": config.digest, "running": alive}]


@route("POST", f"{CT}/snapshot")
def snapshot(call: Call) -> str:
    """A task ``vzsnapshot`` that fails, as on a node whose storage is a directory."""
    call.node.containers.load(call.vmid)

    def work(task: Task) -> None:
        raise ApiError("snapshot feature is not available")

    return call.start("vzsnapshot", call.vmid, work)
