"""Migration of stopped VMs between the nodes of an instance."""

from __future__ import annotations

from typing import Any

from minipve.access import rights
from minipve.api.routing import VM, route
from minipve.base.errors import ApiError, parameter_error
from minipve.config import volume_ids
from minipve.config.rules.formats import split_list
from minipve.config.rules.validate import MISSING
from minipve.guests import shared
from minipve.guests.vm import machines, migration
from minipve.node.call import Call
from minipve.node.tasks import Task

_ROOT_ONLY = ("force", "migration_type", "migration_network")
_IDENTITY = "1"  # as a target storage: each disk stays on the storage of the same name
_SAME_STORAGE = (None, _IDENTITY, volume_ids.STORAGE, f"{volume_ids.STORAGE}:{volume_ids.STORAGE}")


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
    for name in _ROOT_ONLY:
        call.permit.need_root_option(name, call.params)
    _check_storages(call)
    call.node.vms.load(call.vmid).check_lock()
    if machines.running_pid(call.node, call.vmid):
        if call.get("online"):
            raise parameter_error(online="not supported here: only stopped VMs are migrated")
        raise ApiError("can't migrate running VM without --online")
    if call.get("targetstorage") not in _SAME_STORAGE:
        raise parameter_error(targetstorage=f"not supported here: the only storage is {volume_ids.STORAGE}")
    target = call.node.nodes[call["target"]]

    def work(task: Task) -> None:
        migration.migrate(call.node, target, task, call.vmid)

    return call.start("qmigrate", call.vmid, work)


def _check_storages(call: Call) -> None:
    """Raise 403 unless the caller may place the disks on the storages that ``targetstorage`` names."""
    targets = split_list(call.get("targetstorage", _IDENTITY))
    if _IDENTITY not in targets:
        call.permit.need_right(rights.MOVED_DISKS, vmid=call.vmid)
    for target in targets:
        if target != _IDENTITY:
            call.permit.need_right(rights.DISK_SPACE, storage=target.rpartition(":")[2])
