"""Snapshots of a VM: list, create, describe, roll back, delete."""

from __future__ import annotations

from typing import Any

from minipve.access import rights
from minipve.api.nodes.qemu.status import start_in_task
from minipve.api.routing import VM, route
from minipve.base.errors import ApiError, parameter_error
from minipve.config import pending
from minipve.guests.vm import machines, snapshots
from minipve.node.call import Call
from minipve.node.tasks import Task

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
    return {key: pending.api_value(key, value) for key, value in options.items()}


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
        call.permit.need_right(rights.STARTED_GUEST, vmid=call.vmid)

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
