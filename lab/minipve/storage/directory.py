"""The storage ``local``: a directory with PVE's layout (images/VMID, import, template/iso, snippets)."""

from __future__ import annotations

import itertools
import re
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from minipve.base.atomic import UNFINISHED
from minipve.base.errors import ApiError, parameter_error
from minipve.config.drives import DIRECTORIES, STORAGE, parse_volume_id

CONTENT = "images,rootdir,vztmpl,import,snippets,iso"
_EXTENSIONS = {
    "iso": r"\.(?:iso|img)",
    "vztmpl": r"\.tar(?:\.(?:gz|xz|zst))?",
    "import": r"\.(?:ova|qcow2|raw|vmdk)",
}
_FORMATS = {"snippets": "snippet", ".gz": "tgz", ".xz": "txz", ".zst": "tzst"}
_IMAGE_NAME = re.compile(r"(vm|base)-(\d+)-\S+")


class Storage:
    """The files of the storage ``local`` of one instance."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create_directories(self) -> None:
        for directory in ("images", *DIRECTORIES.values()):
            (self.root / directory).mkdir(parents=True, exist_ok=True)

    def path(self, volid: str) -> Path:
        """The file of a volume, whether it exists or not."""
        volume = parse_volume_id(volid)
        if volume.vmid is not None:
            return self.root / "images" / str(volume.vmid) / volume.name
        return self.root / DIRECTORIES[volume.content] / volume.name

    def upload_path(self, tmpfilename: str) -> Path:
        """The file of an upload ``/var/tmp/pveupload-<hex>``, on this file system so that it can be moved."""
        return self.root / f"{UNFINISHED}{Path(tmpfilename).name}"

    def existing(self, volid: str) -> Path:
        """The file of a volume; ApiError (500) if it does not exist."""
        file = self.path(volid)
        if not file.exists():
            raise ApiError(f"volume '{volid}' does not exist")
        return file

    def usage(self) -> dict[str, int]:
        """Return ``total``, ``used`` and ``avail`` bytes of the file system."""
        disk = shutil.disk_usage(self.root)
        return {"total": disk.total, "used": disk.used, "avail": disk.free}

    def free_name(self, vmid: int, fmt: str = "qcow2", name: str | None = None) -> str:
        """Return an unused volume ID for a new image: ``vm-<vmid>-disk-<n>``, or ``name``.

        The caller holds the VM's file lock until the image exists, so that nobody else uses the name.
        """
        directory = self.root / "images" / str(vmid)
        stems = {file.stem.partition("-")[2] for file in directory.glob("*")}
        number = next(n for n in itertools.count() if f"{vmid}-disk-{n}" not in stems)
        return f"{STORAGE}:{vmid}/{name or f'vm-{vmid}-disk-{number}'}.{fmt}"

    def users_of(self, volid: str) -> list[str]:
        """Return the volumes that are linked clones of the base image ``volid``."""
        base = self.path(volid)
        return [
            str(row["volid"])
            for row in self.images(None)
            if row.get("parent") == f"../{base.parent.name}/{base.name}"
        ]

    def remove(self, volid: str) -> None:
        """Delete a volume; ApiError if linked clones depend on it."""
        if parse_volume_id(volid).is_base and self.users_of(volid):
            raise ApiError(f"base volume '{parse_volume_id(volid).volid}' is still in use by linked cloned")
        file = self.path(volid)
        file.unlink(missing_ok=True)
        if file.parent.parent == self.root / "images":
            self.remove_empty_folder(int(file.parent.name))

    def remove_empty_folder(self, vmid: int) -> None:
        """Remove a guest's folder if it is empty."""
        with suppress(OSError):  # it has other images, or somebody else removed it
            (self.root / "images" / str(vmid)).rmdir()

    def of_vm(self, vmid: int) -> list[str]:
        """Return the volume IDs of a VM's images, incomplete ones too; a linked clone's lacks its base."""
        files = sorted((self.root / "images" / str(vmid)).glob("*"))
        return [f"{STORAGE}:{vmid}/{file.name}" for file in files if _IMAGE_NAME.match(file.name)]

    def images(self, vmid: int | None) -> list[dict[str, Any]]:
        """Return the rows of the content list for disk images, of all guests or of one."""
        pattern = f"{vmid}/*" if vmid is not None else "*/*"
        rows = []
        for file in sorted((self.root / "images").glob(pattern)):
            facts = _listed_facts(file)
            if facts is not None and file.parent.name.isdigit():
                parent = facts.get("backing-filename")
                prefix = f"{parent.removeprefix('../')}/" if parent else ""
                rows.append(
                    {
                        "volid": f"{STORAGE}:{prefix}{file.parent.name}/{file.name}",
                        "content": "rootdir" if file.suffix == ".raw" else "images",
                        "format": file.suffix[1:],
                        "vmid": int(file.parent.name),
                        "parent": parent,
                        "size": facts["virtual-size"],
                        "used": facts["actual-size"],
                        "ctime": facts["ctime"],
                    }
                )
        return rows

    def files(self, content: str) -> list[dict[str, Any]]:
        """Return the rows of the content list for uploaded files of one content type."""
        rows = []
        for file in sorted((self.root / DIRECTORIES[content]).iterdir()):
            if file.is_file() and _is_listed(file.name):
                fmt = _FORMATS.get(file.suffix if content == "vztmpl" else content, file.suffix[1:])
                rows.append(
                    {
                        "volid": f"{STORAGE}:{content}/{file.name}",
                        "content": content,
                        "format": fmt,
                        "size": file.stat().st_size,
                        "ctime": int(file.stat().st_ctime),
                    }
                )
        return rows

    def content(self, kind: str | None, vmid: int | None) -> list[dict[str, Any]]:
        """Return the content list, of one type or all. That of a guest lacks ISO images and templates."""
        rows = [row for row in self.images(vmid) if kind in (None, row["content"])]
        for content in DIRECTORIES:
            if kind in (None, content) and not (vmid and content in ("iso", "vztmpl")):
                rows += self.files(content)
        return rows


def _is_listed(name: str) -> bool:
    """Return whether the content list shows a file of this name. Unfinished files begin with a dot."""
    return not name.startswith(".")


def upload_name(content: str, filename: str) -> str:
    """Normalise a file name as PVE does.

    Raises:
        ApiError: the extension does not fit the content type, or no list would show the file (400).
    """
    name = re.sub(r"[^-a-zA-Z0-9_.]", "_", filename.replace("\\", "/").rpartition("/")[2])
    if not re.fullmatch(r".+" + _EXTENSIONS[content], name):
        text = "invalid filename or wrong extension" if content == "import" else "wrong file extension"
        raise parameter_error(filename=text)
    if not _is_listed(name):
        raise parameter_error(filename="a name that begins with a dot is not listed")
    return name


def _listed_facts(file: Path) -> dict[str, Any] | None:
    """Like `image_facts`; None also for a file that is not an image, or that has just been removed."""
    if not _IMAGE_NAME.match(file.name):
        return None
    try:
        return image_facts(file)
    except (FileNotFoundError, IsADirectoryError):
        return None


def image_facts(file: Path) -> dict[str, Any] | None:
    """Return an image's ``virtual-size``, ``actual-size``, ``backing-filename`` and ``ctime``.

    None for an image that is incomplete.

    The qcow2 header is read here instead of by ``qemu-img info``, so that a list of ten disks takes
    milliseconds.
    """
    status = file.stat()
    facts: dict[str, Any] = {"actual-size": status.st_blocks * 512, "virtual-size": status.st_size}
    facts["ctime"] = int(status.st_ctime)
    if file.suffix != ".qcow2":
        return facts
    with file.open("rb") as stream:
        header = stream.read(32)
        if len(header) < 32 or header[:4] != b"QFI\xfb":
            return None
        offset, length, facts["virtual-size"] = struct.unpack(">QI4xQ", header[8:32])
        stream.seek(offset)
        facts["backing-filename"] = (
            stream.read(min(length, 1023)).decode(errors="replace") if offset else None
        )
    return facts
