"""Power, state, snapshots and migration of VMs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minipve.access import permissions
from minipve.api.routing import VM, route
from minipve.base.errors import ApiError, parameter_error
from minipve.config import drives, values
from minipve.config.rules.formats import split_list
from minipve.config.rules.validate import MISSING
from minipve.guests import shared
from minipve.guests.vm import lifecycle, machines, migration, snapshots, summary
from minipve.node.call import Call
from minipve.node.tasks import Task

# Power of VMs: start, stop, shutdown, reboot, reset, suspend, resume as tasks, and the current state.

_ROOT_ONLY = (
    "skiplock", "stateuri", "migratedfrom", "migration_type", "migration_network", "targetstorage",
    "force-cpu", "keepActive", "nets-host-mtu", "with-conntrack-state",
)  # fmt: skip
_SHUTDOWN_S = 60
Action = Callable[[Call, Task], None]


@route("GET", f"{VM}/status/current")
def current(call: Call) -> dict[str, Any]:
    """Return the current state, with byte counters of each NIC."""
    return summary.vm_status(call.node, call.vmid, call.node.vms.load(call.vmid))


def _check(call: Call, must_run: bool) -> None:
    for name in _ROOT_ONLY:
        call.permit.need_root_option(name, call.params)
    call.node.vms.load_or_empty(call.vmid)
    if must_run and not machines.running_pid(call.node, call.vmid):
        raise ApiError(f"VM {call.vmid} not running")


def _locked(call: Call, action: Callable[[], None]) -> None:
    with call.node.vms.locked(call.vmid):
        if not call.get("skiplock"):
            call.node.vms.load_or_empty(call.vmid).check_lock()
        action()


def _start(call: Call, task: Task) -> None:
    lifecycle.start(call.node, task, call.vmid, bool(call.get("skiplock")))


def start_in_task(call: Call) -> str:
    """Start the VM in a task of its own (``qmstart``)."""
    return call.start("qmstart", call.vmid, lambda task: _start(call, task))


def _stop(call: Call, task: Task) -> None:
    if call.get("overrule-shutdown"):
        for upid in call.node.tasks.running("qmshutdown", str(call.vmid)):
            call.node.tasks.interrupt(upid)
    _locked(call, lambda: machines.stop(call.node, call.vmid))


def _shutdown(call: Call, task: Task) -> None:
    timeout_s, force = call.get("timeout", _SHUTDOWN_S), bool(call.get("forceStop"))
    _locked(call, lambda: machines.shutdown(call.node, call.vmid, timeout_s, force, task))


def _reboot(call: Call, task: Task) -> None:
    timeout_s = call.get("timeout", _SHUTDOWN_S)
    _locked(call, lambda: machines.shutdown(call.node, call.vmid, timeout_s, False, task))
    lifecycle.start(call.node, task, call.vmid)


def _reset(call: Call, task: Task) -> None:
    _locked(call, lambda: machines.reset(call.node, call.vmid))


def _suspend(call: Call, task: Task) -> None:
    _locked(call, lambda: machines.suspend(call.node, call.vmid))


def _resume(call: Call, task: Task) -> None:
    _locked(call, lambda: machines.resume(call.node, call.vmid))


_ACTIONS: dict[str, tuple[Action, bool]] = {  # name -> (function, whether the VM must run)
    "start": (_start, False),
    "stop": (_stop, False),
    "shutdown": (_shutdown, False),
    "reboot": (_reboot, True),
    "reset": (_reset, True),
    "suspend": (_suspend, True),
    "resume": (_resume, True),
}


def _declare(name: str, action: Action, must_run: bool) -> None:
    @route("POST", f"{VM}/status/{name}")
    def handler(call: Call) -> str:
        _check(call, must_run)
        return call.start(f"qm{name}", call.vmid, lambda task: action(call, task))


for _name, (_action, _must_run) in _ACTIONS.items():
    _declare(_name, _action, _must_run)


# Snapshots of a VM: list, create, describe, roll back, delete.

_ALL = f"{VM}/snapshot"
_ONE = _ALL + "/{snapname}"


@route("GET", _ALL)
def index(call: Call) -> list[dict[str, Any]]:
    """Return all snapshots and the current state."""
    config = call.node.vms.load(call.vmid)
    running = int(machines.running_pid(call.node, call.vmid) is not None)
    current = {"name": "current", "description": "You are here!", "digest": config.digest, "running": running}
    parent = {"parent": config.options["parent"]} if "parent" in config.options else {}
    return [*(_row(name, options) for name, options in config.snapshots.items()), current | parent]


def _row(name: str, options: dict[str, str]) -> dict[str, Any]:
    row = {"name": name, "snaptime": int(options["snaptime"]), "vmstate": 0}
    row |= {"description": options.get("description", "")}
    return row | {key: options[key] for key in ("parent", "snapstate") if key in options}


@route("POST", _ALL)
def create(call: Call) -> str:
    """Create a snapshot (task ``qmsnapshot``)."""
    name = call["snapname"]
    if name == "current" or name.lower() == "pending":
        raise ApiError(f"unable to use snapshot name '{name.lower()}' (reserved name)")
    call.node.vms.load(call.vmid)
    if call.get("vmstate") and machines.running_pid(call.node, call.vmid):
        raise parameter_error(vmstate="not supported here, since snapshots do not contain memory")

    def work(task: Task) -> None:
        snapshots.create(call.node, task.log, call.vmid, name, call.get("description", ""))

    return call.start("qmsnapshot", call.vmid, work)


@route("GET", _ONE)
def commands(call: Call) -> list[dict[str, str]]:
    """Return the names below a snapshot, as in the API viewer's tree."""
    return [{"cmd": "rollback"}, {"cmd": "config"}]


@route("DELETE", _ONE)
def delete(call: Call) -> str:
    """Remove a snapshot (task ``qmdelsnapshot``)."""

    def work(task: Task) -> None:
        snapshots.delete(call.node, task.log, call.vmid, call["snapname"], bool(call.get("force")))

    return call.start("qmdelsnapshot", call.vmid, work)


@route("GET", f"{_ONE}/config")
def read(call: Call) -> dict[str, Any]:
    options = snapshots.existing(call.node.vms.load(call.vmid), call["snapname"])
    return {key: values.api_value(key, value) for key, value in options.items()}


@route("PUT", f"{_ONE}/config")
def describe(call: Call) -> None:
    if "description" in call.params:
        with call.node.vms.changing(call.vmid) as config:
            config.check_lock()
            snapshots.existing(config, call["snapname"])["description"] = call["description"]


@route("POST", f"{_ONE}/rollback")
def rollback(call: Call) -> str:
    """Roll back to a snapshot (task ``qmrollback``). The VM stops; with ``start`` another task starts it."""
    if call.get("start"):
        call.permit.need_right(permissions.STARTED_GUEST, vmid=call.vmid)

    def work(task: Task) -> None:
        snapshots.rollback(call.node, task.log, call.vmid, call["snapname"])
        if call.get("start"):
            call.start_guest(task, start_in_task)

    return call.start("qmrollback", call.vmid, work)


@route("GET", f"{VM}/feature")
def feature(call: Call) -> dict[str, Any]:
    """Return whether a VM supports snapshots, linked clones (only templates do) or copies."""
    config = call.node.vms.load(call.vmid)
    has = {"snapshot": not config.is_template, "clone": config.is_template, "copy": True}[call["feature"]]
    return {"hasFeature": int(has), "nodes": [call.node.name] if has else []}


# Migration of stopped VMs between the nodes of an instance.

_ROOT_MIGRATION = ("force", "migration_type", "migration_network")
_IDENTITY = "1"  # as a target storage: each disk stays on the storage of the same name
_SAME_STORAGE = (None, _IDENTITY, drives.STORAGE, f"{drives.STORAGE}:{drives.STORAGE}")


@route("GET", f"{VM}/migrate")
def preconditions(call: Call) -> dict[str, Any]:
    return migration.preconditions(call.node, call.vmid)


@route("POST", f"{VM}/migrate")
def migrate(call: Call) -> str:
    """Move a stopped VM to another node (task ``qmigrate``)."""
    if "target" not in call.params:
        raise parameter_error(target=MISSING)
    if not shared.is_elsewhere(call.node, call["target"]):
        raise parameter_error(target="target is local node.")
    for name in _ROOT_MIGRATION:
        call.permit.need_root_option(name, call.params)
    _check_storages(call)
    call.node.vms.load(call.vmid).check_lock()
    if machines.running_pid(call.node, call.vmid):
        if call.get("online"):
            raise parameter_error(online="not supported here: only stopped VMs are migrated")
        raise ApiError("can't migrate running VM without --online")
    if call.get("targetstorage") not in _SAME_STORAGE:
        raise parameter_error(targetstorage=f"not supported here: the only storage is {drives.STORAGE}")
    target = call.node.nodes[call["target"]]

    def work(task: Task) -> None:
        migration.migrate(call.node, target, task, call.vmid)

    return call.start("qmigrate", call.vmid, work)


def _check_storages(call: Call) -> None:
    """Raise 403 unless the caller may place the disks on the storages that ``targetstorage`` names."""
    targets = split_list(call.get("targetstorage", _IDENTITY))
    if _IDENTITY not in targets:
        call.permit.need_right(permissions.MOVED_DISKS, vmid=call.vmid)
    for target in targets:
        if target != _IDENTITY:
            call.permit.need_right(permissions.DISK_SPACE, storage=target.rpartition(":")[2])
