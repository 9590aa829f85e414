"""The volumes behind a VM's drives: made, taken over, imported, cloned, turned into bases.

The caller holds the VM's lock.
"""

from __future__ import annotations

from minipve.config import drives
from minipve.errors import ApiError
from minipve.image import qemu_img, storage, untrusted
from minipve.node import Node
from minipve.tasks import Task

_CLOUDINIT_BYTES = 4 * 2**20


def create(node: Node, task: Task, vmid: int, slot: str, drive: drives.Drive) -> str:
    """Make the volume that ``drive`` asks for; returns the string to store. The caller has the VM's lock."""
    wanted = drives.new_volume(drive)
    if not wanted:
        return _adopt(node, slot, drive)
    storage.check_exists(wanted["store"])
    if drive.get("format", "qcow2") != "qcow2":
        raise ApiError(f"unable to create image: format '{drive['format']}' is not supported here, use qcow2")
    kept = {key: value for key, value in drive.items() if key not in ("format", "import-from", "size")}
    if wanted["cloudinit"]:
        kept |= {"file": _empty(node, task, vmid, _CLOUDINIT_BYTES, f"vm-{vmid}-cloudinit"), "media": "cdrom"}
    elif source := drive.get("import-from"):
        kept |= _import(node, task, vmid, source)
    else:
        size = int(float(wanted["gib"]) * 2**30)
        kept |= {"file": _empty(node, task, vmid, size), "size": storage.size_text(size)}
    made = drives.text(slot, kept)
    task.log(f"{slot}: successfully created disk '{made}'")
    return made


def _adopt(node: Node, slot: str, drive: drives.Drive) -> str:
    """An existing volume: its size is filled in."""
    if drive["file"] in ("none", "cdrom"):
        return drives.text(slot, drive)
    facts = storage.image_facts(node.storage.existing(drive["file"]))
    size = {"size": storage.size_text(facts["virtual-size"])} if facts else {}
    return drives.text(slot, drive | size)


def _formatting(node: Node, volid: str, size: int) -> str:
    return f"Formatting '{node.storage.path(volid)}', fmt=qcow2 size={size}"


def _empty(node: Node, task: Task, vmid: int, size: int, name: str | None = None) -> str:
    volid = node.storage.free_name(vmid, name=name)
    task.log(_formatting(node, volid, size))
    qemu_img.create(node.storage.path(volid), storage.checked_size(size))
    return volid


def _import(node: Node, task: Task, vmid: int, source: str) -> drives.Drive:
    volid = node.storage.free_name(vmid)
    file = node.storage.path(source)
    if not file.exists():
        raise ApiError(f"failed to stat '{file}'")
    if storage.parse(source).content == "import":
        size = untrusted.check(file, storage.parse(source).format)
    else:
        size = (storage.image_facts(file) or {"virtual-size": 0})["virtual-size"]
    task.log(f"create full clone of drive ({source})")
    task.log(_formatting(node, volid, size))
    task.log(f"allocated target volume '{volid}'")
    try:
        qemu_img.import_image(file, node.storage.path(volid))
    except BaseException:
        node.storage.remove(volid)
        raise
    task.log("transferred 100.00%")
    return {"file": volid, "size": storage.size_text(size)}


def clone(
    node: Node,
    task: Task,
    newid: int,
    slot: str,
    drive: drives.Drive,
    full: bool,
    snapname: str | None = None,
) -> str:
    """A drive's copy for a new VM: cloud-init drive anew, CD-ROM shared, disk linked or copied."""
    source = drive["file"]
    if drives.is_cloudinit(drive):
        volid = _empty(node, task, newid, _CLOUDINIT_BYTES, f"vm-{newid}-cloudinit")
        return drives.text(slot, drive | {"file": volid, "size": storage.size_text(_CLOUDINIT_BYTES)})
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
        volid = f"{storage.NAME}:{base.parent.name}/{base.name}/{rest}"
    return drives.text(slot, drive | {"file": volid})


def to_base(node: Node, slot: str, drive: drives.Drive) -> str:
    """A template's drive: the image becomes a write-protected base; cloud-init drives and CD-ROMs stay."""
    if drives.is_cdrom(drive):
        return drives.text(slot, drive)
    old = storage.parse(drive["file"])
    volid = f"{storage.NAME}:{old.vmid}/{old.name.replace('vm-', 'base-', 1)}"
    qemu_img.make_base(node.storage.path(old.volid), node.storage.path(volid))
    return drives.text(slot, drive | {"file": volid})
