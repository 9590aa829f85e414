"""Images that name other files of this machine: refused, and nothing that they name is opened."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from minipve.errors import ApiError
from minipve.image import untrusted

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is needed")


def create(file: Path, fmt: str, *options: str) -> Path:
    subprocess.run(["qemu-img", "create", "-q", "-f", fmt, *options, file, "1M"], check=True)
    return file


@pytest.mark.parametrize(
    ("fmt", "options"),
    [
        ("raw", []),
        ("qcow2", []),
        ("qcow2", ["-o", "compat=0.10"]),
        ("vmdk", []),
        ("vmdk", ["-o", "subformat=streamOptimized"]),
    ],
)
def test_images_that_stand_on_their_own(tmp_path: Path, fmt: str, options: list[str]) -> None:
    assert untrusted.check(create(tmp_path / "image", fmt, *options), fmt) == 2**20


def backed(folder: Path) -> Path:
    secret = create(folder / "secret", "raw")
    return create(folder / "image.qcow2", "qcow2", "-F", "raw", "-b", str(secret))


def backed_by_json(folder: Path) -> Path:
    """A pseudo-protocol instead of a name: read by QEMU alone."""
    image = create(folder / "image.qcow2", "qcow2")
    name = b'json:{"driver":"raw","file":{"driver":"file","filename":"/etc/passwd"}}'
    data = bytearray(image.read_bytes())
    data[8:20] = struct.pack(">QI", 0x20000, len(name))
    image.write_bytes(bytes(data).ljust(0x20000, b"\0") + name)
    return image


def external_data(folder: Path) -> Path:
    return create(folder / "image.qcow2", "qcow2", "-o", f"data_file={folder / 'data'},data_file_raw=on")


def flat(folder: Path) -> Path:
    return create(folder / "image.vmdk", "vmdk", "-o", "subformat=monolithicFlat")


def flat_by_hand(folder: Path) -> Path:
    text = '# Disk DescriptorFile\nversion=1\ncreateType="monolithicFlat"\nRW 8 FLAT "/etc/passwd" 0\n'
    (folder / "image.vmdk").write_text(text)
    return folder / "image.vmdk"


def split(folder: Path) -> Path:
    return create(folder / "image.vmdk", "vmdk", "-o", "subformat=twoGbMaxExtentSparse")


def capacity_zero(folder: Path) -> Path:
    """A sparse header whose embedded descriptor is believed instead."""
    image = create(folder / "image.vmdk", "vmdk")
    data = bytearray(image.read_bytes())
    data[12:20] = bytes(8)
    image.write_bytes(data)
    return image


def parent(folder: Path) -> Path:
    base = create(folder / "base.vmdk", "vmdk")
    image = folder / "image.vmdk"
    subprocess.run(["qemu-img", "create", "-q", "-f", "vmdk", "-F", "vmdk", "-b", base, image], check=True)
    return image


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (backed, "backing file not allowed for untrusted image"),
        (backed_by_json, "backing file not allowed for untrusted image"),
        (external_data, "'data-file' references are not allowed"),
        (flat, "not a VMDK image of a single file"),
        (flat_by_hand, "not a VMDK image of a single file"),
        (split, "not a VMDK image of a single file"),
        (capacity_zero, "multiple children or extents are not allowed"),
        (parent, "backing file not allowed for untrusted image"),
    ],
)
def test_images_that_name_other_files(tmp_path: Path, make: Callable[[Path], Path], text: str) -> None:
    image = make(tmp_path)
    with pytest.raises(ApiError, match=text):
        untrusted.check(image, image.suffix[1:])


def test_an_iso_is_what_it_begins_with(tmp_path: Path) -> None:
    image = backed(tmp_path)
    assert untrusted.format_of(image) == "qcow2"
    assert untrusted.format_of(tmp_path / "secret") == "raw"


@pytest.mark.parametrize(("real", "told"), [("raw", "qcow2"), ("raw", "vmdk"), ("qcow2", "vmdk")])
def test_a_name_that_lies(tmp_path: Path, real: str, told: str) -> None:
    with pytest.raises(ApiError, match="is no"):
        untrusted.check(create(tmp_path / "image", real), told)


def test_a_qcow2_told_to_be_raw_is_only_bytes(tmp_path: Path) -> None:
    image = backed(tmp_path)
    assert untrusted.check(image, "raw") // 1024 == image.stat().st_size // 1024


@pytest.mark.parametrize("size", [0, 2**63])
def test_sizes_that_no_disk_has(tmp_path: Path, size: int) -> None:
    image = create(tmp_path / "image.qcow2", "qcow2")
    data = bytearray(image.read_bytes())
    data[24:32] = struct.pack(">Q", size)
    image.write_bytes(data)
    with pytest.raises(Exception, match=r"size zero|more than 64T|qemu-img info"):
        untrusted.check(image, "qcow2")


def test_other_formats_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ApiError, match="images of format 'ova' are not supported here, only raw, qcow2, vmdk"
    ):
        untrusted.check(tmp_path / "image.ova", "ova")
