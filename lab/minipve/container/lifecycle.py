"""What tasks do to whole containers: create, clone, start, shut down, resize, destroy.

Each leaves either the finished container or nothing, as with virtual machines.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from minipve import firewall, guests, process
from minipve.config import container_nics
from minipve.config.kinds import LXC
from minipve.config.store import GuestConfig
from minipve.container import changes, options
from minipve.errors import ApiError, error_prefix
from minipve.image import storage
from minipve.lxc import commands, rootfs, running, setup
from minipve.network import veths
from minipve.node import Node
from minipve.process import MachineError
from minipve.tasks import Task


def forget(node: Node, vmid: int) -> None:
    """Remove what a container has outside of the storage: its processes, its tree."""
    commands.stop(vmid, node.paths)
    rootfs.forget(vmid, node.paths)


def recover(node: Node) -> list[int]:
    """Remove what a killed endpoint left half-made or half-removed; returns the VMIDs."""
    half = guests.recover(node, LXC, forget)
    for vmid in set(running.find_all(node.paths)) - set(node.containers.vmids()):
        commands.stop(vmid, node.paths)
    sweep(node)
    return half


def sweep(node: Node) -> None:
    """Remove trees that nobody needs: of containers that are no more, of archives that are gone."""
    archives = [node.storage.path(str(row["volid"])) for row in node.storage.files("vztmpl")]
    rootfs.sweep(node.paths, node.containers.exists, archives)


@dataclass(frozen=True)
class New:
    """What a creation call asks for beside the options."""

    archive: str
    size: int
    password: str = ""
    keys: str = ""
    pool: str | None = None


def create(node: Node, task: Task, vmid: int, given: dict[str, str], new: New) -> None:
    """Fill the configuration that holds the lock ``create``."""
    with (
        node.containers.locked(vmid),
        guests.undo_on_failure(node, LXC, vmid, forget),
        error_prefix(f"unable to create CT {vmid} - "),
    ):
        archive = node.storage.existing(new.archive)
        volid = _volume(node, task, vmid, new.size)
        first_id = commands.owner(given, node.paths)
        task.log(f"extracting archive '{archive}'")
        rootfs.make(vmid, archive, first_id, node.paths)
        made = given | {"rootfs": options.rootfs_text(volid, new.size)}
        made |= _first_look(node, task, vmid, made, new)
        guests.add_to_pool(node, new.pool, vmid)
        node.containers.save(vmid, GuestConfig(made, kind=LXC))


def _volume(node: Node, task: Task, vmid: int, size: int) -> str:
    """What stands for the tree in the storage: an empty file of its size."""
    volid = node.storage.free_name(vmid, "raw")
    file = node.storage.path(volid)
    task.log(f"Formatting '{file}', fmt=raw size={size} preallocation=off")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.truncate(size)
    return volid


def _first_look(node: Node, task: Task, vmid: int, made: Mapping[str, str], new: New) -> dict[str, str]:
    """Set a new tree up; returns what was found in it."""
    hashed = (
        process.run(["openssl", "passwd", "-5", "-stdin"], stdin=new.password).strip() if new.password else ""
    )
    first_id, key = commands.owner(made, node.paths), setup.host_key(made["hostname"])

    def work() -> str:
        setup.new(hashed, new.keys, key, first_id)
        return made.get("ostype") or setup.os_type()

    found = {"arch": "amd64", "ostype": commands.within(vmid, node.paths, work)}
    task.log("Detected container architecture: amd64")
    return found


def start(node: Node, task: Task, vmid: int, skiplock: bool = False) -> None:
    """Bring pending changes into force and start the container."""
    with node.containers.locked(vmid):
        config = node.containers.load(vmid)
        if config.is_template:
            raise ApiError("you can't start a CT if it's a template")
        if not skiplock:
            config.check_lock()
        if running.init_pid(vmid, node.paths):
            raise ApiError(f"CT {vmid} already running")
        changes.apply_stopped(config)
        node.containers.save(vmid, config)
        commands.start(vmid, config.options, node.paths, task.log)


def stop(node: Node, vmid: int, skiplock: bool = False) -> None:
    """End the container at once."""
    with node.containers.locked(vmid):
        if not skiplock:
            node.containers.load_or_empty(vmid).check_lock()
        commands.stop(vmid, node.paths)


def shutdown(node: Node, task: Task, vmid: int, timeout_s: float, force: bool) -> None:
    """Ask the container to end and wait; with ``force`` end it when it does not in time."""
    with node.containers.locked(vmid):
        node.containers.load_or_empty(vmid).check_lock()
        commands.ask_to_shut_down(vmid, node.paths)
        deadline = time.monotonic() + timeout_s
        while running.init_pid(vmid, node.paths):
            if time.monotonic() > deadline:
                if force:
                    break
                raise MachineError("command 'lxc-stop' failed: got timeout")
            task.wait(0.02)
        commands.stop(vmid, node.paths)


@dataclass(frozen=True)
class Clone:
    """What a clone call asks for; a linked one there is not, as on any storage of directories."""

    source: int
    newid: int
    hostname: str | None = None
    description: str | None = None
    pool: str | None = None


def clone(node: Node, task: Task, wanted: Clone) -> None:
    """Make a full copy of a stopped container, with MAC addresses and a machine id of its own."""
    newid = wanted.newid
    with guests.undo_on_failure(node, LXC, newid, forget), node.containers.locked(wanted.source, shared=True):
        source = node.containers.load(wanted.source)
        source.check_lock()
        with node.containers.locked(newid), error_prefix("clone failed: "):
            size = options.rootfs_bytes(source.options)
            task.log(f"create full clone of mountpoint rootfs ({options.rootfs_volume(source.options)})")
            made = {key: value for key, value in source.options.items() if key not in ("template", "lock")}
            made |= {key: container_nics.with_new_mac(made[key]) for key in made if key.startswith("net")}
            made["rootfs"] = options.rootfs_text(_volume(node, task, newid, size), size)
            made |= {"hostname": wanted.hostname} if wanted.hostname else {}
            made |= {"description": wanted.description} if wanted.description else {}
            rootfs.copy(wanted.source, newid, node.paths)
            first_id, key = commands.owner(made, node.paths), setup.host_key(made["hostname"])
            commands.within(newid, node.paths, lambda: setup.renew(key, first_id))
            guests.add_to_pool(node, wanted.pool, newid)
            firewall.copy(node, wanted.source, newid)
            node.containers.save(newid, GuestConfig(made, kind=LXC))


def make_template(node: Node, vmid: int) -> None:
    """Mark a stopped container as a template; its volume gets a base's name."""
    with node.containers.changing(vmid) as config:
        _check_convertible(node, vmid, config)
        old = storage.parse(options.rootfs_volume(config.options))
        volid = f"{storage.NAME}:{old.vmid}/{old.name.replace('vm-', 'base-', 1)}"
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
    """Grow the tree, on paper: it is a folder, whose size nobody enforces."""
    with node.containers.changing(vmid) as config:
        config.check_digest(digest)
        config.check_lock()
        volid = options.rootfs_volume(config.options)
        with node.storage.existing(volid).open("r+b") as stream:
            stream.truncate(size)
        config.options["rootfs"] = options.rootfs_text(volid, size)
        task.log("Image resized.")


def destroy(node: Node, task: Task, vmid: int, force: bool, purge: bool) -> None:
    """Remove a container, its tree, its place in the pools and the rights given on it."""
    with node.containers.locked(vmid):
        config = node.containers.load_or_empty(vmid)
        if config.options.get("lock") not in guests.UNFINISHED:
            config.check_lock()
        if running.init_pid(vmid, node.paths):
            if not force:
                raise ApiError(f"unable to destroy CT {vmid} - container is running")
            task.log(f"forced to stop CT {vmid} before destroying!")
        if purge:
            task.log(f"purging CT {vmid} from related configurations..")
        node.containers.mark(vmid, GuestConfig(kind=LXC), "destroyed")
        forget(node, vmid)
        guests.forget_rights(node, vmid)
        guests.remove(node, LXC, vmid)


def interfaces(node: Node, vmid: int) -> list[dict[str, object]] | None:
    """The addresses inside a running container, None of a stopped one."""
    pid = running.init_pid(vmid, node.paths)
    return None if pid is None else veths.interfaces(pid)
