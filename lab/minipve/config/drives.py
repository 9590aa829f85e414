"""Names of volumes, sizes of disks, and a VM's drive options, as text (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from minipve.base.errors import ApiError
from minipve.config.rules import schema

# Names of volumes and sizes of disks, as text (pure).
#
# A volume ID is `local:<volume>`, for example `100/vm-100-disk-0.qcow2`, `import/debian.qcow2`,
# `iso/x.iso` or `snippets/user.yaml`. That of a linked clone includes its base:
# `100/base-100-disk-0.qcow2/101/vm-101-disk-0.qcow2`.

STORAGE = "local"
"""The name of the only storage."""
MAX_DISK_BYTES = 64 * 2**40
DIRECTORIES = {"iso": "template/iso", "vztmpl": "template/cache", "import": "import", "snippets": "snippets"}
"""Kind of content -> its folder in the storage."""
_IMAGE = re.compile(
    r"(?:(?P<basevm>[0-9]{1,9})/(?P<base>base-[^/\s]+)/)?"
    r"(?P<vmid>[0-9]{1,9})/(?P<name>[^/\s]+\.(?P<format>raw|qcow2|vmdk))"
)


@dataclass(frozen=True)
class Volume:
    """A parsed volume ID of the storage ``local``."""

    volid: str
    content: str
    name: str
    vmid: int | None = None
    format: str = ""
    base: str | None = None

    @property
    def is_base(self) -> bool:
        """Whether it is a template's disk, from which linked clones are created."""
        return self.vmid is not None and self.name.startswith("base-")


def parse_volume_id(volid: str) -> Volume:
    """Parse a volume ID.

    Raises:
        ApiError: unknown storage or invalid name (500, PVE's texts).
    """
    store, colon, rest = volid.partition(":")
    if not colon:
        raise ApiError(f"unable to parse volume ID '{volid}'")
    check_exists(store)
    kind, _, name = rest.partition("/")
    if kind in DIRECTORIES and name and "/" not in name and name not in (".", ".."):
        return Volume(volid, kind, name, format=name.rpartition(".")[2])
    match = _IMAGE.fullmatch(rest)
    if not match:
        raise ApiError(f"unable to parse directory volume name '{rest}'")
    base = f"{store}:{match['basevm']}/{match['base']}" if match["base"] else None
    content = "rootdir" if match["format"] == "raw" else "images"
    return Volume(volid, content, match["name"], int(match["vmid"]), match["format"], base)


def full_id(store: str, volume: str) -> str:
    """Return the volume ID for a name with or without storage: ``iso/x.iso`` -> ``local:iso/x.iso``."""
    return volume if ":" in volume else f"{store}:{volume}"


def check_exists(store: str) -> None:
    """ApiError (500) unless ``store`` is the one storage of this node."""
    if store != STORAGE:
        raise ApiError(f"storage '{store}' does not exist")


def size_bytes(text: str) -> int:
    """Parse a size: ``96M`` -> 100663296; a plain number is bytes."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGT]?)", text)
    if not match:
        raise ApiError(f"unable to parse size '{text}'")
    return checked_size(int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " ")))


def checked_size(size: int) -> int:
    """Return the size of a disk in bytes; ApiError if it is above the limit."""
    if size > MAX_DISK_BYTES:
        raise ApiError(f"disks of more than {size_text(MAX_DISK_BYTES)} are not supported here")
    return size


def size_text(size: int) -> str:
    """Format a size in the shortest exact form: 100663296 -> ``96M``."""
    for power, unit in enumerate("TGMK"):
        step: int = 1024 ** (4 - power)
        if size >= step and size % step == 0:
            return f"{size // step}{unit}"
    return str(size)


# A VM's drive options: `scsi0: local:100/vm-100-disk-0.qcow2,discard=on,size=8G` (pure functions).

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
    return volid if ":" in volid and parse_volume_id(volid).vmid == vmid else None


def volumes(options: Mapping[str, str], vmid: int) -> Iterator[tuple[str, str]]:
    """Yield (slot, volume id) of the images that belong to this VM, including unused ones."""
    slots = [s for s in options if is_slot(s) or s.startswith("unused")]
    for slot in slots:
        if volid := owned_volume(slot, options[slot], vmid):
            yield slot, volid


def boot_disk_bytes(options: Mapping[str, str]) -> int:
    """Return the size of the first hard disk; 0 without one."""
    sizes = [drive.get("size", "0") for _, drive in of(options) if not is_cdrom(drive)]
    return size_bytes(sizes[0]) if sizes else 0


def default_boot(options: Mapping[str, str]) -> str:
    """Return PVE's boot order for a new VM: first disk, first CD-ROM, first NIC."""
    slots = list(of(options))
    order = [s for s, d in slots if not is_cdrom(d)][:1] + [s for s, d in slots if is_cdrom(d)][:1]
    order += sorted((o for o in options if re.fullmatch(r"net\d+", o)), key=lambda o: int(o[3:]))[:1]
    return f"order={';'.join(order)}" if order else ""
