"""Snapshots of a VM: list, take, describe, roll back, delete."""

from __future__ import annotations

from typing import Any

from minipve.api import VM, route
from minipve.config import pending
from minipve.errors import ApiError, parameter_error
from minipve.node import Call
from minipve.tasks import Task
from minipve.vm import lifecycle, machines, snapshots

_ALL = f"{VM}/snapshot"
_ONE = _ALL + "/{snapname}"


@route("GET", _ALL)
def index(call: Call) -> list[dict[str, Any]]:
    """All snapshots, and the present state, which every VM has."""
    config = call.node.vms.load(call.vmid)
    running = int(machines.running_pid(call.node, call.vmid) is not None)
    current = {"name": "current", "description": "You are here!", "digest": config.digest, "running": running}
    parent = {"parent": config.options["parent"]} if "parent" in config.options else {}
    return [*(_row(name, found) for name, found in config.snapshots.items()), current | parent]


def _row(name: str, found: dict[str, str]) -> dict[str, Any]:
    row = {"name": name, "snaptime": int(found["snaptime"]), "vmstate": 0}
    row |= {"description": found.get("description", "")}
    return row | {key: found[key] for key in ("parent", "snapstate") if key in found}


@route("POST", _ALL)
def create(call: Call) -> str:
    """Take a snapshot (task ``qmsnapshot``)."""
    name = call["snapname"]
    if name == "current" or name.lower() == "pending":
        raise ApiError(f"unable to use snapshot name '{name.lower()}' (reserved name)")
    call.node.vms.load(call.vmid)
    if call.get("vmstate") and machines.running_pid(call.node, call.vmid):
        raise parameter_error(vmstate="not supported here: a snapshot holds no memory")

    def work(task: Task) -> None:
        snapshots.create(call.node, task.log, call.vmid, name, call.get("description", ""))

    return call.start("qmsnapshot", call.vmid, work)


@route("GET", _ONE)
def commands(call: Call) -> list[dict[str, str]]:
    """The names below a snapshot, as the API viewer's tree has them."""
    return [{"cmd": "rollback"}, {"cmd": "config"}]


@route("DELETE", _ONE)
def delete(call: Call) -> str:
    """Remove a snapshot (task ``qmdelsnapshot``)."""

    def work(task: Task) -> None:
        snapshots.delete(call.node, task.log, call.vmid, call["snapname"], bool(call.get("force")))

    return call.start("qmdelsnapshot", call.vmid, work)


@route("GET", f"{_ONE}/config")
def read(call: Call) -> dict[str, Any]:
    """A snapshot's configuration."""
    found = snapshots.existing(call.node.vms.load(call.vmid), call["snapname"])
    return {key: pending.api_value(key, value) for key, value in found.items()}


@route("PUT", f"{_ONE}/config")
def describe(call: Call) -> None:
    """Change a snapshot's description."""
    if "description" in call.params:
        with call.node.vms.changing(call.vmid) as config:
            config.check_lock()
            snapshots.existing(config, call["snapname"])["description"] = call["description"]


@route("POST", f"{_ONE}/rollback")
def rollback(call: Call) -> str:
    """Go back to a snapshot (task ``qmrollback``); the machine is stopped, and started again if asked."""
    if call.get("start"):
        call.permit.need(f"/vms/{call.vmid}", ["VM.PowerMgmt"])

    def work(task: Task) -> None:
        snapshots.rollback(call.node, task.log, call.vmid, call["snapname"])
        if call.get("start"):
            lifecycle.start(call.node, task, call.vmid)

    return call.start("qmrollback", call.vmid, work)


@route("GET", f"{VM}/feature")
def feature(call: Call) -> dict[str, Any]:
    """Whether a VM can be snapshotted, cloned (linked, which takes a template) or copied."""
    config = call.node.vms.load(call.vmid)
    has = {"snapshot": not config.is_template, "clone": config.is_template, "copy": True}[call["feature"]]
    return {"hasFeature": int(has), "nodes": [call.node.name] if has else []}
