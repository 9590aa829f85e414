"""Drives as a configuration says them: ``scsi0: local:100/vm-100-disk-0.qcow2,discard=on,size=8G`` (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from minipve.config import schema
from minipve.image import storage

Drive = dict[str, str]
_SLOT = re.compile(r"(?:ide|sata|scsi|virtio)\d+")
_NEW = re.compile(r"(?P<store>[^:]+):(?:(?P<gib>[0-9]{1,9}(?:\.[0-9]{1,9})?)|(?P<cloudinit>cloudinit))")
_CLOUDINIT = re.compile(r"vm-\d+-cloudinit\b")


def is_slot(option: str) -> bool:
    """True for ``scsi0``, ``ide2``, ..."""
    return _SLOT.fullmatch(option) is not None


def parse(slot: str, text: str) -> Drive:
    """The parts of a drive string; ``file`` is the volume or what to make."""
    return schema.parse_option("unused0" if slot.startswith("unused") else slot, text)


def text(slot: str, drive: Mapping[str, str]) -> str:
    """The drive string in canonical order."""
    return schema.option_text(slot, drive)


def new_volume(drive: Mapping[str, str]) -> re.Match[str] | None:
    """``store`` and ``gib`` or ``cloudinit`` of a string that asks for a volume to be made (``local:32``)."""
    return _NEW.fullmatch(drive["file"])


def is_new(drive: Mapping[str, str]) -> bool:
    """True when the string asks for a volume to be made (``local:32``, ``local:cloudinit``)."""
    return new_volume(drive) is not None


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


def owned_volume(slot: str, text: str, vmid: int) -> str | None:
    """The volume of a drive when it is an image of the VM itself: nothing else is ever freed with it."""
    volid = parse(slot, text)["file"]
    return volid if ":" in volid and storage.parse(volid).vmid == vmid else None


def volumes(options: Mapping[str, str], vmid: int) -> Iterator[tuple[str, str]]:
    """(slot, volume id) of the images that belong to the VM itself, unused ones included."""
    slots = [s for s in options if is_slot(s) or s.startswith("unused")]
    for slot in slots:
        if volid := owned_volume(slot, options[slot], vmid):
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
