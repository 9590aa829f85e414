"""Names of volumes and sizes of disks, as text (pure).

A volume ID is ``local:<volume>``, for example ``100/vm-100-disk-0.qcow2``, ``import/debian.qcow2``,
``iso/x.iso`` or ``snippets/user.yaml``. That of a linked clone includes its base:
``100/base-100-disk-0.qcow2/101/vm-101-disk-0.qcow2``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from minipve.base.errors import ApiError

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


def parse(volid: str) -> Volume:
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
