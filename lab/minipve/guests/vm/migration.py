"""Move a stopped VM to another node of the cluster: its volumes, then its configuration.

All nodes of an instance are on one file system, so everything is moved by renames. The VM is locked
meanwhile, and its volumes belong where its configuration is: after an interruption, ``recover`` moves them
there.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Any

from minipve.base.errors import FAILURES, ApiError, text_of
from minipve.config import drives
from minipve.config.store import GuestConfig
from minipve.guests.vm import machines
from minipve.node.node import Node
from minipve.node.tasks import Task
from minipve.storage import directory

LOCK = "migrate"
_UNUSED = "unused"


def preconditions(node: Node, vmid: int) -> dict[str, Any]:
    """Return where a VM could go, and its local disks, as PVE does."""
    config = node.vms.load(vmid)
    is_running = machines.running_pid(node, vmid) is not None
    others = [other.name for other in node.nodes.values() if other is not node and other.is_up]
    return {
        "running": int(is_running),
        "allowed_nodes": [] if is_running else others,
        "not_allowed_nodes": {},
        "local_disks": _local_disks(node, vmid, config),
        "local_resources": [],
        "mapped-resources": [],
        "mapped-resource-info": {},
    }


def _local_disks(node: Node, vmid: int, config: GuestConfig) -> list[dict[str, Any]]:
    rows = []
    for slot, drive in drives.of(config.options):
        if ":" in drive["file"]:
            facts = directory.image_facts(node.storage.existing(drive["file"])) or {"virtual-size": 0}
            is_image = drives.is_cdrom(drive) and not drives.is_cloudinit(drive)
            row = {"volid": drive["file"], "size": facts["virtual-size"], "cdrom": int(is_image)}
            rows.append(row | {"drivename": slot, "is_unused": 0})
    for key, volid in config.options.items():
        if key.startswith(_UNUSED):
            facts = directory.image_facts(node.storage.existing(volid)) or {"virtual-size": 0}
            rows.append({"volid": volid, "size": facts["virtual-size"], "cdrom": 0, "is_unused": 1})
    return rows


def migrate(node: Node, target: Node, task: Task, vmid: int) -> None:
    """Move a stopped VM (the work of the task ``qmigrate``)."""
    begin = monotonic()
    task.log(f"starting migration of VM {vmid} to node '{target.name}' ({target.address})")
    try:
        _move(node, target, task, vmid)
    except (ApiError, *FAILURES) as error:
        text = error.detail if isinstance(error, ApiError) else text_of(error)
        task.log(f"ERROR: migration aborted (duration {_duration(begin)}): {text}")
        raise ApiError("migration aborted") from error
    task.log(f"migration finished successfully (duration {_duration(begin)})")


def _move(node: Node, target: Node, task: Task, vmid: int) -> None:
    if not target.is_up:
        raise ApiError(f"ssh: connect to host {target.address} port 22: No route to host")
    with node.vms.locked(vmid):
        config = node.vms.load(vmid)
        config.check_lock()
        if machines.running_pid(node, vmid):
            raise ApiError("can't migrate running VM without --online")
        volumes = _volumes(node, target, task, vmid, config)
        node.vms.begin_work(vmid, config, LOCK)
        try:
            for volid in volumes:
                task.log(f"copying local disk image '{volid}' to '{target.name}'")
                _rename(node, target, volid)
        except BaseException:
            _gather(node, vmid)
            raise
        machines.remove_seed(node, vmid)
        node.vms.move(vmid, target.vms)
        _gather(target, vmid)


def _volumes(node: Node, target: Node, task: Task, vmid: int, config: GuestConfig) -> list[str]:
    """Return the volumes to move. Raises 500, after logging each reason, if one of them has to stay."""
    volumes, reasons = [], []
    sections = _sections(config)
    cdroms = (
        drive["file"] for section in sections for _, drive in drives.of(section) if drives.is_cdrom(drive)
    )
    for volid in dict.fromkeys(cdroms):
        if ":" in volid and drives.parse_volume_id(volid).vmid is None:
            reasons.append(f"can't migrate local disk '{volid}': local cdrom image")
    for volid in dict.fromkeys(volid for section in sections for _, volid in drives.volumes(section, vmid)):
        task.log(f"found local disk '{volid}' (attached)")
        if base := drives.parse_volume_id(volid).base:
            reasons.append(f"can't migrate local disk '{volid}': clone of '{base}'")
        if node.storage.users_of(volid):
            reasons.append(f"can't migrate local disk '{volid}': base of linked clones")
        if target.storage.path(volid).exists():
            reasons.append(f"can't migrate local disk '{volid}': it exists on node '{target.name}'")
        volumes.append(volid)
    for reason in reasons:
        task.log(reason)
    if reasons:
        raise ApiError("can't migrate VM - check log")
    return volumes


def _sections(config: GuestConfig) -> list[dict[str, str]]:
    return [config.options, config.pending, *config.snapshots.values()]


def _gather(node: Node, vmid: int) -> None:
    """Move all volumes of a VM to its node, from wherever they are, and unlock it."""
    config = node.vms.load(vmid)
    for section in _sections(config):
        for _, volid in drives.volumes(section, vmid):
            for other in node.nodes.values():
                if other is not node and not node.storage.path(volid).exists():
                    _rename(other, node, volid)
    config.options.pop("lock", None)
    node.vms.save(vmid, config)


def _rename(source: Node, target: Node, volid: str) -> None:
    """Move a volume between the nodes' storages, if it exists."""
    old, new = source.storage.path(volid), target.storage.path(volid)
    if old.exists():
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)
        source.storage.remove_empty_folder(int(old.parent.name))


def recover(node: Node) -> None:
    """Undo or finish the migrations that a killed endpoint left, when all nodes are there."""
    for vmid in node.vms.unfinished([LOCK]):
        with suppress(ApiError, *FAILURES):  # the VM stays locked, so that its owner sees the problem
            _gather(node, vmid)


def _duration(begin: float) -> str:
    seconds = round(monotonic() - begin)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
