"""Check a disk image from an untrusted source before anything else opens it.

An image can refer to other files of this host: a backing file, an external data file, the extents of a
VMDK. QEMU would open them and copy their content into the new disk. Therefore the header is read here
first, which opens nothing else. Only then runs ``qemu-img info``, with the format stated so that it does
not guess. Proxmox VE has the same rules.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from minipve.base import process
from minipve.base.errors import ApiError
from minipve.config import drives

_FORMATS = ("raw", "qcow2", "vmdk")
_EXTERNAL_DATA = 1 << 2  # qcow2's incompatible feature bit: the data is in another file
_INFO_TIMEOUT_S = 10.0


def format_of(file: Path) -> str:
    """Return the format by the first bytes, for a file whose name does not state it (an ISO)."""
    return {b"QFI\xfb": "qcow2", b"KDMV": "vmdk"}.get(_start(file, 4), "raw")


def check(file: Path, fmt: str) -> int:
    """Check an image and return its virtual size in bytes.

    Raises:
        ApiError: the file is not an image of format ``fmt``, or it refers to other files.
    """
    if fmt not in _FORMATS:
        raise ApiError(f"images of format '{fmt}' are not supported here, only {', '.join(_FORMATS)}")
    if fmt == "qcow2":
        _check_qcow2(file)
    elif fmt == "vmdk":
        _check_vmdk(file)
    info = process.run_json(["qemu-img", "info", "-f", fmt, "--output=json", file], timeout_s=_INFO_TIMEOUT_S)
    return _checked_size(file, info)


def _checked_size(file: Path, info: dict[str, Any]) -> int:
    """Refuse what PVE refuses in qemu-img's answer (`file_size_info` of an untrusted image)."""
    specific = info.get("format-specific", {}).get("data", {})
    if info.get("backing-filename"):
        raise ApiError(f"backing file not allowed for untrusted image '{file}'!")
    if specific.get("data-file"):
        raise ApiError(f"{file}: 'data-file' references are not allowed!")
    extents = [extent["filename"] for extent in specific.get("extents", [])]
    if extents not in ([], [str(file)]) or len(info.get("children", [])) > 1:
        raise ApiError(f"{file}: multiple children or extents are not allowed!")
    if info["virtual-size"] == 0:
        raise ApiError(f"image '{file}' has size zero")
    return drives.checked_size(int(info["virtual-size"]))


def _start(file: Path, length: int) -> bytes:
    with file.open("rb") as stream:
        return stream.read(length)


def _check_qcow2(file: Path) -> None:
    """Check version, backing file and features in the header (QEMU, docs/interop/qcow2.txt)."""
    header = _start(file, 80).ljust(80, b"\0")
    magic, version, backing = struct.unpack(">4sIQ", header[:16])
    if magic != b"QFI\xfb" or version not in (2, 3):
        raise ApiError(f"'{file}' is not a qcow2 image")
    if backing:
        raise ApiError(f"backing file not allowed for untrusted image '{file}'!")
    if version == 3 and struct.unpack(">Q", header[72:80])[0] & _EXTERNAL_DATA:
        raise ApiError(f"{file}: 'data-file' references are not allowed!")


def _check_vmdk(file: Path) -> None:
    """Accept a sparse extent with its own descriptor. Others, or a capacity of 0, refer to other files."""
    header = _start(file, 20).ljust(20, b"\0")
    magic, _version, _flags, capacity = struct.unpack("<4sIIQ", header)
    if magic != b"KDMV":
        raise ApiError(f"'{file}' is not a VMDK image of a single file")
    if capacity == 0:
        raise ApiError(f"{file}: multiple children or extents are not allowed!")
