"""Create, clone, convert, start, resize and destroy containers, and their rows in lists."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minipve.base import host, process
from minipve.base.errors import ApiError, MachineError, error_prefix
from minipve.config import container_nics, drives, values
from minipve.config.rules.schema import LXC
from minipve.config.store import GuestConfig
from minipve.guests import shared
from minipve.guests.container import options
from minipve.guests.container.options import rootfs_bytes
from minipve.guests.lxc import limits, power, rootfs, running, setup
from minipve.network import guest_ports
from minipve.node.node import Node
from minipve.node.tasks import Task

# A container's rows in the lists that the API returns.

_RESOURCE = (
    "vmid", "name", "status", "uptime", "cpu", "mem", "maxmem", "disk", "maxdisk", "netin", "netout",
    "diskread", "diskwrite",
)  # fmt: skip


def row(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """Return a container as ``GET /nodes/{node}/lxc`` shows it."""
    state, options = running.state(vmid, node.paths), config.options
    memory, swap = values.container_memory_mib(options)
    cpus = min(int(options.get("cores", host.cpus())), host.cpus())
    facts: dict[str, Any] = {
        "type": "lxc",
        "vmid": vmid,
        "name": options.get("hostname", f"CT{vmid}"),
        "status": state.status,
        "cpus": cpus,
        "maxmem": memory * 2**20,
        "maxswap": swap * 2**20,
        "maxdisk": rootfs_bytes(options),
        "disk": rootfs.used_bytes(vmid, node.paths) if state.pid else 0,
        "cpu": state.cpu / cpus,
        "mem": state.mem_bytes,
        "swap": 0,
        "uptime": state.uptime_s,
        "netin": sum(nic["netin"] for nic in state.nics.values()),
        "netout": sum(nic["netout"] for nic in state.nics.values()),
        "diskread": 0,
        "diskwrite": 0,
    }
    if state.pid:
        facts |= {"pid": state.pid} | dict.fromkeys(host.PRESSURES)  # null, as on a Proxmox VE node
    if config.is_template:
        facts["template"] = 1
    return facts | {key: options[key] for key in ("tags", "lock") if key in options}


def status(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """Return a container as ``GET .../status/current`` shows it."""
    return row(node, vmid, config) | {"ha": {"managed": 0}}


def resource(node: Node, vmid: int, config: GuestConfig) -> dict[str, Any]:
    """Return a container's row in two lists: the cluster's resources, and the members of a pool."""
    facts = row(node, vmid, config)
    identity = {"id": f"lxc/{vmid}", "type": "lxc", "node": node.name, "template": facts.get("template", 0)}
    return identity | {"maxcpu": facts["cpus"], "memhost": facts["mem"]} | {k: facts[k] for k in _RESOURCE}


# Create, clone, convert, start, shut down, resize and destroy containers; mostly the work of a task.
#
# As with virtual machines, a failure leaves nothing behind.


def forget(node: Node, vmid: int) -> None:
    """End a container's processes and remove its files, which are not in the storage."""
    power.stop(vmid, node.paths)
    rootfs.remove(vmid, node.paths)


def recover(node: Node) -> list[int]:
    """Remove containers that a killed endpoint was creating or destroying. Returns their VMIDs."""
    removed = shared.recover(node, LXC, forget)
    for vmid in set(running.find_all(node.paths)) - set(node.containers.vmids()):
        power.stop(vmid, node.paths)
    sweep(node)
    return removed


def sweep(node: Node) -> None:
    """Remove the files of containers that do not exist any more, and unused templates without an archive."""
    archives = [node.storage.path(str(row["volid"])) for row in node.storage.files("vztmpl")]
    rootfs.sweep(node.paths, node.containers.exists, archives)


@dataclass(frozen=True)
class CreateRequest:
    """The parameters of a creation call that are not options of the container."""

    archive: str
    rootfs_bytes: int
    password: str = ""
    ssh_keys: str = ""
    pool: str | None = None


def create(node: Node, task: Task, vmid: int, params: dict[str, str], request: CreateRequest) -> None:
    """Create a container's files and write its configuration, which so far holds the lock ``create`` only."""
    with (
        node.containers.locked(vmid),
        shared.undo_on_failure(node, LXC, vmid, forget),
        error_prefix(f"unable to create CT {vmid} - "),
    ):
        archive = node.storage.existing(request.archive)
        volid = _create_volume(node, task, vmid, request.rootfs_bytes)
        first_id = limits.of_root(params, node.paths)
        task.log(f"extracting archive '{archive}'")
        rootfs.create(vmid, archive, first_id, request.rootfs_bytes, node.paths)
        config = params | {"rootfs": options.rootfs_text(volid, request.rootfs_bytes)}
        config |= _set_up_rootfs(node, task, vmid, config, request)
        shared.add_to_pool(node, request.pool, vmid)
        node.containers.save(vmid, GuestConfig(config, kind=LXC))


def _create_volume(node: Node, task: Task, vmid: int, size: int) -> str:
    """Create the volume that represents the root file system in the storage: a sparse file of its size."""
    volid = node.storage.free_name(vmid, "raw")
    file = node.storage.path(volid)
    task.log(f"Formatting '{file}', fmt=raw size={size} preallocation=off")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.truncate(size)
    return volid


def _set_up_rootfs(
    node: Node, task: Task, vmid: int, config: Mapping[str, str], request: CreateRequest
) -> dict[str, str]:
    """Write password and keys into a new root file system; returns the options that depend on its content."""
    password_hash = ""
    if request.password:
        password_hash = process.run(["openssl", "passwd", "-5", "-stdin"], stdin=request.password).strip()
    first_id, host_key = limits.of_root(config, node.paths), setup.new_host_key(config["hostname"])

    def work() -> str:
        setup.at_creation(password_hash, request.ssh_keys, host_key, first_id)
        return config.get("ostype") or setup.os_type()

    os_type = rootfs.within(vmid, node.paths, work)
    task.log("Detected container architecture: amd64")
    return {"arch": "amd64", "ostype": os_type}


def start(node: Node, task: Task, vmid: int, skiplock: bool = False) -> None:
    """Apply the pending changes and start the container."""
    with node.containers.locked(vmid):
        config = node.containers.load(vmid)
        if config.is_template:
            raise ApiError("you can't start a CT if it's a template")
        if not skiplock:
            config.check_lock()
        if running.init_pid(vmid, node.paths):
            raise ApiError(f"CT {vmid} already running")
        options.apply_stopped(config)
        node.containers.save(vmid, config)
        power.start(vmid, config.options, node.paths, task.log)


def stop(node: Node, vmid: int, skiplock: bool = False) -> None:
    """End the container at once; ``skiplock`` ignores its config lock."""
    with node.containers.locked(vmid):
        if not skiplock:
            node.containers.load_or_empty(vmid).check_lock()
        power.stop(vmid, node.paths)


def shutdown(node: Node, task: Task, vmid: int, timeout_s: float, force: bool) -> None:
    """Ask the container to shut down and wait.

    Raises:
        MachineError: it is still running after ``timeout_s``; with ``force`` it is ended instead.
    """
    with node.containers.locked(vmid):
        node.containers.load_or_empty(vmid).check_lock()
        power.ask_to_shut_down(vmid, node.paths)
        deadline = time.monotonic() + timeout_s
        while running.init_pid(vmid, node.paths):
            if time.monotonic() > deadline:
                if force:
                    break
                raise MachineError("command 'lxc-stop' failed: got timeout")
            task.wait(0.02)
        power.stop(vmid, node.paths)


@dataclass(frozen=True)
class ContainerCloneRequest:
    """The parameters of a clone call. As on any directory storage there are no linked clones."""

    source: int
    newid: int
    hostname: str | None = None
    description: str | None = None
    pool: str | None = None


def clone(node: Node, task: Task, request: ContainerCloneRequest) -> None:
    """Create a full copy of a stopped container, with new MAC addresses, host key and machine id."""
    newid = request.newid
    with (
        shared.undo_on_failure(node, LXC, newid, forget),
        node.containers.locked(request.source, shared=True),
    ):
        source = node.containers.load(request.source)
        source.check_lock()
        with node.containers.locked(newid), error_prefix("clone failed: "):
            size = options.rootfs_bytes(source.options)
            task.log(f"create full clone of mountpoint rootfs ({options.rootfs_volume(source.options)})")
            copy = {key: value for key, value in source.options.items() if key not in ("template", "lock")}
            copy |= {key: container_nics.with_new_mac(copy[key]) for key in copy if key.startswith("net")}
            copy["rootfs"] = options.rootfs_text(_create_volume(node, task, newid, size), size)
            copy |= {"hostname": request.hostname} if request.hostname else {}
            copy |= {"description": request.description} if request.description else {}
            rootfs.copy(request.source, newid, node.paths)
            first_id, host_key = limits.of_root(copy, node.paths), setup.new_host_key(copy["hostname"])
            rootfs.within(newid, node.paths, lambda: setup.at_clone(host_key, first_id))
            shared.add_to_pool(node, request.pool, newid)
            node.containers.save(newid, GuestConfig(copy, kind=LXC))


def make_template(node: Node, vmid: int) -> None:
    """Mark a stopped container as a template and rename its volume to a base."""
    with node.containers.changing(vmid) as config:
        _check_convertible(node, vmid, config)
        old = drives.parse_volume_id(options.rootfs_volume(config.options))
        volid = f"{drives.STORAGE}:{old.vmid}/{old.name.replace('vm-', 'base-', 1)}"
        node.storage.path(old.volid).replace(node.storage.path(volid))
        config.options["rootfs"] = options.rootfs_text(volid, options.rootfs_bytes(config.options))
        config.options["template"] = "1"


def _check_convertible(node: Node, vmid: int, config: GuestConfig) -> None:
    config.check_lock()
    if config.is_template:
        raise ApiError("you can't convert a template to a template")
    if running.init_pid(vmid, node.paths):
        raise ApiError("you can't convert a CT to template if the CT is running")


def resize(node: Node, task: Task, vmid: int, size: int, digest: str | None) -> None:
    """Grow the root file system. It is a folder, so only its recorded size changes."""
    with node.containers.changing(vmid) as config:
        config.check_digest(digest)
        config.check_lock()
        volid = options.rootfs_volume(config.options)
        with node.storage.existing(volid).open("r+b") as stream:
            stream.truncate(size)
        config.options["rootfs"] = options.rootfs_text(volid, size)
        task.log("Image resized.")


def destroy(node: Node, task: Task, vmid: int, force: bool, purge: bool) -> None:
    """Remove a container with its files, pool memberships and permissions. ``force`` stops it first."""
    with node.containers.locked(vmid):
        config = node.containers.load_or_empty(vmid)
        if config.options.get("lock") not in shared.UNFINISHED:
            config.check_lock()
        if running.init_pid(vmid, node.paths):
            if not force:
                raise ApiError(f"unable to destroy CT {vmid} - container is running")
            task.log(f"forced to stop CT {vmid} before destroying!")
        if purge:
            task.log(f"purging CT {vmid} from related configurations..")
        node.containers.begin_work(vmid, GuestConfig(kind=LXC), "destroyed")
        forget(node, vmid)
        shared.forget_rights(node, vmid)
        shared.remove(node, LXC, vmid)


def interfaces(node: Node, vmid: int) -> list[dict[str, object]] | None:
    """Return the interfaces of a running container; None if it does not run."""
    init_pid = running.init_pid(vmid, node.paths)
    return None if init_pid is None else guest_ports.interfaces(init_pid)
