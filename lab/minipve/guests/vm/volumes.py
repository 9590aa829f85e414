"""Volumes of a VM's drives: create, import, clone, convert to a base. Callers hold the VM's lock."""

from __future__ import annotations

from minipve.base.errors import ApiError
from minipve.config import drives
from minipve.node.node import Node
from minipve.node.tasks import Task
from minipve.storage import directory, qemu_img, untrusted

_CLOUDINIT_BYTES = 4 * 2**20


def create(node: Node, task: Task, vmid: int, slot: str, drive: drives.Drive) -> str:
    """Create the volume that a drive requests, and return the drive option to store.

    A drive may also name an existing volume; then only its size is added.
    """
    request = drives.new_volume(drive)
    if not request:
        return _with_size(node, slot, drive)
    drives.check_exists(request["store"])
    stored = {key: value for key, value in drive.items() if key not in ("format", "import-from", "size")}
    if request["cloudinit"]:
        volid = _create_empty(node, task, vmid, _CLOUDINIT_BYTES, f"vm-{vmid}-cloudinit")
        stored |= {"file": volid, "media": "cdrom"}
    elif source := drive.get("import-from"):
        stored |= _import(node, task, vmid, source)
    else:
        size = int(float(request["gib"]) * 2**30)
        stored |= {"file": _create_empty(node, task, vmid, size), "size": drives.size_text(size)}
    text = drives.text(slot, stored)
    task.log(f"{slot}: successfully created disk '{text}'")
    return text


def _with_size(node: Node, slot: str, drive: drives.Drive) -> str:
    """Return the option of a drive with an existing volume, with the volume's size."""
    if drive["file"] in ("none", "cdrom"):
        return drives.text(slot, drive)
    facts = directory.image_facts(node.storage.existing(drive["file"]))
    size = {"size": drives.size_text(facts["virtual-size"])} if facts else {}
    return drives.text(slot, drive | size)


def _formatting_line(node: Node, volid: str, size: int) -> str:
    return f"Formatting '{node.storage.path(volid)}', fmt=qcow2 size={size}"


def _create_empty(node: Node, task: Task, vmid: int, size: int, name: str | None = None) -> str:
    volid = node.storage.free_name(vmid, name=name)
    task.log(_formatting_line(node, volid, size))
    qemu_img.create(node.storage.path(volid), drives.checked_size(size))
    return volid


def _import(node: Node, task: Task, vmid: int, source: str) -> drives.Drive:
    volid = node.storage.free_name(vmid)
    file = node.storage.path(source)
    if not file.exists():
        raise ApiError(f"failed to stat '{file}'")
    if drives.parse_volume_id(source).content == "import":
        size = untrusted.check(file, drives.parse_volume_id(source).format)
    else:
        size = (directory.image_facts(file) or {"virtual-size": 0})["virtual-size"]
    task.log(f"create full clone of drive ({source})")
    task.log(_formatting_line(node, volid, size))
    task.log(f"allocated target volume '{volid}'")
    try:
        qemu_img.import_image(file, node.storage.path(volid))
    except BaseException:
        node.storage.remove(volid)
        raise
    task.log("transferred 100.00%")
    return {"file": volid, "size": drives.size_text(size)}


def clone(
    node: Node,
    task: Task,
    newid: int,
    slot: str,
    drive: drives.Drive,
    full: bool,
    snapname: str | None = None,
) -> str:
    """Clone a drive for a new VM and return its option: a disk is linked or copied, a CD-ROM image shared.

    The new VM gets an empty cloud-init drive.
    """
    source = drive["file"]
    if drives.is_cloudinit(drive):
        volid = _create_empty(node, task, newid, _CLOUDINIT_BYTES, f"vm-{newid}-cloudinit")
        return drives.text(slot, drive | {"file": volid, "size": drives.size_text(_CLOUDINIT_BYTES)})
    if drives.is_cdrom(drive):
        return drives.text(slot, drive)
    kind = "full" if full else "linked"
    task.log(f"create {kind} clone of drive {slot} ({source})")
    volid = node.storage.free_name(newid)
    target, base = node.storage.path(volid), node.storage.existing(source)
    task.log(f"clone {base.name} to {target.name}")
    if full:
        qemu_img.full_clone(base, target, snapname)
    else:
        qemu_img.linked_clone(base, target)
        rest = volid.partition(":")[2]
        volid = f"{drives.STORAGE}:{base.parent.name}/{base.name}/{rest}"
    return drives.text(slot, drive | {"file": volid})


def to_base(node: Node, slot: str, drive: drives.Drive) -> str:
    """Convert a template's disk to a read-only base image and return its option. CD-ROM drives stay."""
    if drives.is_cdrom(drive):
        return drives.text(slot, drive)
    old = drives.parse_volume_id(drive["file"])
    volid = f"{drives.STORAGE}:{old.vmid}/{old.name.replace('vm-', 'base-', 1)}"
    qemu_img.make_base(node.storage.path(old.volid), node.storage.path(volid))
    return drives.text(slot, drive | {"file": volid})
