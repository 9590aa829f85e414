"""Images that somebody brings: looked into before anything else opens them, as PVE does it.

An image can name other files of this machine: a backing file, an external data file, the extents of a VMDK.
QEMU would open what is named there, and the new disk would hold what they hold. So the header is read here
first, by which nothing else is opened; only then ``qemu-img info`` is asked, and told the format rather than
left to guess.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from minipve import process
from minipve.errors import ApiError
from minipve.image import storage

_FORMATS = ("raw", "qcow2", "vmdk")
_EXTERNAL_DATA = 1 << 2  # qcow2's incompatible feature: the data lies in another file
_LOOK_S = 10.0


def format_of(file: Path) -> str:
    """The format by the first bytes, for a file whose name does not tell (an ISO)."""
    return {b"QFI\xfb": "qcow2", b"KDMV": "vmdk"}.get(_start(file, 4), "raw")


def check(file: Path, fmt: str) -> int:
    """The virtual size of ``file``; ApiError unless it is an image of that format that stands on its own."""
    if fmt not in _FORMATS:
        raise ApiError(f"images of format '{fmt}' are not supported here, only {', '.join(_FORMATS)}")
    {"raw": _nothing, "qcow2": _qcow2, "vmdk": _vmdk}[fmt](file)
    info = process.run_json(["qemu-img", "info", "-f", fmt, "--output=json", file], timeout_s=_LOOK_S)
    return _judge(file, info)


def _judge(file: Path, info: dict[str, Any]) -> int:
    """What PVE refuses in qemu-img's answer (``file_size_info`` of an untrusted image)."""
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
    return storage.sane(int(info["virtual-size"]))


def _start(file: Path, length: int) -> bytes:
    with file.open("rb") as stream:
        return stream.read(length)


def _nothing(file: Path) -> None:
    """Raw bytes name nothing."""


def _qcow2(file: Path) -> None:
    """The header's own words: version, backing file, features (QEMU's docs/interop/qcow2.txt)."""
    header = _start(file, 80).ljust(80, b"\0")
    magic, version, backing = struct.unpack(">4sIQ", header[:16])
    if magic != b"QFI\xfb" or version not in (2, 3):
        raise ApiError(f"'{file}' is no qcow2 image")
    if backing:
        raise ApiError(f"backing file not allowed for untrusted image '{file}'!")
    if version == 3 and struct.unpack(">Q", header[72:80])[0] & _EXTERNAL_DATA:
        raise ApiError(f"{file}: 'data-file' references are not allowed!")


def _vmdk(file: Path) -> None:
    """Only a sparse extent that describes itself: a descriptor in words, or capacity 0, names other files."""
    header = _start(file, 20).ljust(20, b"\0")
    magic, _version, _flags, capacity = struct.unpack("<4sIIQ", header)
    if magic != b"KDMV":
        raise ApiError(f"'{file}' is no VMDK image of a single file")
    if capacity == 0:
        raise ApiError(f"{file}: multiple children or extents are not allowed!")
