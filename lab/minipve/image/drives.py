"""Drives of a VM: the strings in its configuration, and the volumes behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lab.minipve.config import schema
from lab.minipve.config.validate import parse as parse_property
from lab.minipve.config.validate import to_text
from lab.minipve.errors import ApiError
from lab.minipve.image import disks, storage

if TYPE_CHECKING:
    from lab.minipve.node import Node
    from lab.minipve.tasks import Task

Drive = dict[str, str]
_SLOT = re.compile(r"(?:ide|sata|scsi|virtio)\d+")
_NEW = re.compile(r"(?P<store>[^:]+):(?:(?P<gib>\d+(?:\.\d+)?)|(?P<cloudinit>cloudinit))")
_CLOUDINIT = re.compile(r"vm-\d+-cloudinit\b")
_CLOUDINIT_BYTES = 4 * 2**20


def is_slot(option: str) -> bool:
    """True for ``scsi0``, ``ide2``, ..."""
    return _SLOT.fullmatch(option) is not None


def parse(slot: str, text: str) -> Drive:
    """The parts of a drive string; ``file`` is the volume or what to make."""
    return parse_property(schema.option_format("unused0" if slot.startswith("unused") else slot), text)


def text(slot: str, drive: Mapping[str, str]) -> str:
    """The drive string in canonical order."""
    return to_text(schema.option_format(slot), drive)


def is_new(drive: Mapping[str, str]) -> bool:
    """True when the string asks for a volume to be made (``local:32``, ``local:cloudinit``)."""
    return _NEW.fullmatch(drive["file"]) is not None


def is_cloudinit(drive: Mapping[str, str]) -> bool:
    """True for the cloud-init drive, existing or asked for."""
    return drive["file"].endswith(":cloudinit") or _CLOUDINIT.search(drive["file"]) is not None


def is_cdrom(drive: Mapping[str, str]) -> bool:
    """True for CD-ROM drives, the cloud-init drive included."""
    return drive.get("media") == "cdrom" or drive["file"] in ("none", "cdrom") or is_cloudinit(drive)


def of(options: Mapping[str, str]) -> Iterator[tuple[str, Drive]]:
    """All drives of a VM by slot, in the order in which PVE looks for a boot disk."""

    def rank(slot: str) -> tuple[int, int]:
        bus, number = re.sub(r"\d", "", slot), int(re.sub(r"\D", "", slot))
        return ["ide", "scsi", "virtio", "sata"].index(bus), number

    for slot in sorted(filter(is_slot, options), key=rank):
        yield slot, parse(slot, options[slot])


def volumes(options: Mapping[str, str], vmid: int) -> Iterator[tuple[str, str]]:
    """(slot, volume id) of the images that belong to the VM itself, unused ones included."""
    slots = [s for s in options if is_slot(s) or s.startswith("unused")]
    for slot in slots:
        volid = parse(slot, options[slot])["file"]
        if ":" in volid and storage.parse(volid).vmid == vmid:
            yield slot, volid


def boot_disk_bytes(options: Mapping[str, str]) -> int:
    """The size of the first hard disk, 0 without one."""
    sizes = [drive.get("size", "0") for _, drive in of(options) if not is_cdrom(drive)]
    return storage.size_bytes(sizes[0]) if sizes else 0


def default_boot(options: Mapping[str, str]) -> str:
    """PVE's boot order of a new VM: first disk, first CD-ROM, first NIC."""
    found = list(of(options))
    order = [s for s, d in found if not is_cdrom(d)][:1] + [s for s, d in found if is_cdrom(d)][:1]
    order += sorted((o for o in options if re.fullmatch(r"net\d+", o)), key=lambda o: int(o[3:]))[:1]
    return f"order={';'.join(order)}"


def create(node: Node, task: Task, vmid: int, slot: str, drive: Drive) -> str:
    """Make the volume that ``drive`` asks for; returns the string to store. The caller has the VM's lock."""
    wanted = _NEW.fullmatch(drive["file"])
    if not wanted:
        return _adopt(node, slot, drive)
    storage.known(wanted["store"])
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
    made = text(slot, kept)
    task.log(f"{slot}: successfully created disk '{made}'")
    return made


def _adopt(node: Node, slot: str, drive: Drive) -> str:
    """An existing volume: its size is filled in."""
    if drive["file"] in ("none", "cdrom"):
        return text(slot, drive)
    facts = storage.image_facts(node.storage.existing(drive["file"]))
    size = {"size": storage.size_text(facts["virtual-size"])} if facts else {}
    return text(slot, drive | size)


def _formatting(node: Node, volid: str, size: int) -> str:
    return f"Formatting '{node.storage.path(volid)}', fmt=qcow2 size={size}"


def _empty(node: Node, task: Task, vmid: int, size: int, name: str | None = None) -> str:
    volid = node.storage.free_name(vmid, name=name)
    task.log(_formatting(node, volid, size))
    disks.create(node.storage.path(volid), size)
    return volid


def _import(node: Node, task: Task, vmid: int, source: str) -> Drive:
    volid = node.storage.free_name(vmid)
    file = node.storage.existing(source)
    task.log(f"create full clone of drive ({source})")
    size = (storage.image_facts(file) or {"virtual-size": 0})["virtual-size"]
    task.log(_formatting(node, volid, size))
    task.log(f"allocated target volume '{volid}'")
    try:
        disks.import_image(file, node.storage.path(volid))
    except BaseException:
        node.storage.remove(volid)
        raise
    task.log("transferred 100.00%")
    return {"file": volid, "size": storage.size_text(size)}


def clone(node: Node, task: Task, newid: int, slot: str, drive: Drive, full: bool) -> str:
    """A drive's copy for a new VM: cloud-init drive anew, CD-ROM shared, disk linked or copied."""
    source = drive["file"]
    if is_cloudinit(drive):
        volid = _empty(node, task, newid, _CLOUDINIT_BYTES, f"vm-{newid}-cloudinit")
        return text(slot, drive | {"file": volid})
    if is_cdrom(drive):
        return text(slot, drive)
    kind = "full" if full else "linked"
    task.log(f"create {kind} clone of drive {slot} ({source})")
    volid = node.storage.free_name(newid)
    target, base = node.storage.path(volid), node.storage.existing(source)
    task.log(f"clone {base.name} to {target.name}")
    if full:
        disks.full_clone(base, target)
    else:
        disks.linked_clone(base, target)
        rest = volid.partition(":")[2]
        volid = f"{storage.NAME}:{base.parent.name}/{base.name}/{rest}"
    return text(slot, drive | {"file": volid})


def to_base(node: Node, slot: str, drive: Drive) -> str:
    """A template's drive: the image becomes a write-protected base; cloud-init drives and CD-ROMs stay."""
    if is_cdrom(drive):
        return text(slot, drive)
    old = storage.parse(drive["file"])
    volid = f"{storage.NAME}:{old.vmid}/{old.name.replace('vm-', 'base-', 1)}"
    disks.make_base(node.storage.path(old.volid), node.storage.path(volid))
    return text(slot, drive | {"file": volid})
