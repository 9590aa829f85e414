"""A VM's drive options: ``scsi0: local:100/vm-100-disk-0.qcow2,discard=on,size=8G`` (pure functions)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from minipve.config import volume_ids
from minipve.config.rules import schema

Drive = dict[str, str]
_SLOT = re.compile(r"(?:ide|sata|scsi|virtio)\d+")
_NEW = re.compile(r"(?P<store>[^:]+):(?:(?P<gib>[0-9]{1,9}(?:\.[0-9]{1,9})?)|(?P<cloudinit>cloudinit))")
_CLOUDINIT = re.compile(r"vm-\d+-cloudinit\b")


def is_slot(option: str) -> bool:
    """Return whether an option is a drive: ``scsi0``, ``ide2``, ..."""
    return _SLOT.fullmatch(option) is not None


def parse(slot: str, text: str) -> Drive:
    """Parse a drive option. Its ``file`` is a volume, or a request for a new one (``local:32``)."""
    return schema.parse_option("unused0" if slot.startswith("unused") else slot, text)


def text(slot: str, drive: Mapping[str, str]) -> str:
    """Return the option's text in canonical order."""
    return schema.option_text(slot, drive)


def new_volume(drive: Mapping[str, str]) -> re.Match[str] | None:
    """Return the request for a new volume (groups ``store``, ``gib``, ``cloudinit``); None if it exists."""
    return _NEW.fullmatch(drive["file"])


def is_new(drive: Mapping[str, str]) -> bool:
    """Return whether the drive requests a new volume (``local:32``, ``local:cloudinit``)."""
    return new_volume(drive) is not None


def is_cloudinit(drive: Mapping[str, str]) -> bool:
    """Return whether it is the cloud-init drive, existing or requested."""
    return drive["file"].endswith(":cloudinit") or _CLOUDINIT.search(drive["file"]) is not None


def is_cdrom(drive: Mapping[str, str]) -> bool:
    """Return whether it is a CD-ROM drive. The cloud-init drive is one."""
    return drive.get("media") == "cdrom" or drive["file"] in ("none", "cdrom") or is_cloudinit(drive)


def of(options: Mapping[str, str]) -> Iterator[tuple[str, Drive]]:
    """Yield all drives of a VM with their slot, in the order in which PVE looks for a boot disk."""

    def rank(slot: str) -> tuple[int, int]:
        bus, number = re.sub(r"\d", "", slot), int(re.sub(r"\D", "", slot))
        return ["ide", "scsi", "virtio", "sata"].index(bus), number

    for slot in sorted(filter(is_slot, options), key=rank):
        yield slot, parse(slot, options[slot])


def owned_volume(slot: str, text: str, vmid: int) -> str | None:
    """Return a drive's volume if it belongs to this VM. Only such volumes are deleted with the drive."""
    volid = parse(slot, text)["file"]
    return volid if ":" in volid and volume_ids.parse(volid).vmid == vmid else None


def volumes(options: Mapping[str, str], vmid: int) -> Iterator[tuple[str, str]]:
    """Yield (slot, volume id) of the images that belong to this VM, including unused ones."""
    slots = [s for s in options if is_slot(s) or s.startswith("unused")]
    for slot in slots:
        if volid := owned_volume(slot, options[slot], vmid):
            yield slot, volid


def boot_disk_bytes(options: Mapping[str, str]) -> int:
    """Return the size of the first hard disk; 0 without one."""
    sizes = [drive.get("size", "0") for _, drive in of(options) if not is_cdrom(drive)]
    return volume_ids.size_bytes(sizes[0]) if sizes else 0


def default_boot(options: Mapping[str, str]) -> str:
    """Return PVE's boot order for a new VM: first disk, first CD-ROM, first NIC."""
    slots = list(of(options))
    order = [s for s, d in slots if not is_cdrom(d)][:1] + [s for s, d in slots if is_cdrom(d)][:1]
    order += sorted((o for o in options if re.fullmatch(r"net\d+", o)), key=lambda o: int(o[3:]))[:1]
    return f"order={';'.join(order)}" if order else ""
