"""Images that refer to other files of this host are refused, and those files are not opened."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from minipve.base.errors import ApiError
from minipve.storage import untrusted

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
def test_self_contained_image_is_accepted(tmp_path: Path, fmt: str, options: list[str]) -> None:
    assert untrusted.check(create(tmp_path / "image", fmt, *options), fmt) == 2**20


def backed(folder: Path) -> Path:
    secret = create(folder / "secret", "raw")
    return create(folder / "image.qcow2", "qcow2", "-F", "raw", "-b", str(secret))


def backed_by_json(folder: Path) -> Path:
    """A pseudo-protocol instead of a file name, which only QEMU interprets."""
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
    """A sparse header with capacity 0, so that QEMU uses the embedded descriptor instead."""
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
def test_image_that_refers_to_another_file_is_refused(
    tmp_path: Path, make: Callable[[Path], Path], text: str
) -> None:
    image = make(tmp_path)
    with pytest.raises(ApiError, match=text):
        untrusted.check(image, image.suffix[1:])


def test_format_is_detected_by_the_first_bytes(tmp_path: Path) -> None:
    image = backed(tmp_path)
    assert untrusted.format_of(image) == "qcow2"
    assert untrusted.format_of(tmp_path / "secret") == "raw"


@pytest.mark.parametrize(("real", "stated"), [("raw", "qcow2"), ("raw", "vmdk"), ("qcow2", "vmdk")])
def test_image_of_another_format_is_refused(tmp_path: Path, real: str, stated: str) -> None:
    with pytest.raises(ApiError, match="is not"):
        untrusted.check(create(tmp_path / "image", real), stated)


def test_qcow2_read_as_raw_is_plain_bytes(tmp_path: Path) -> None:
    image = backed(tmp_path)
    assert untrusted.check(image, "raw") // 1024 == image.stat().st_size // 1024


@pytest.mark.parametrize("size", [0, 2**63])
def test_impossible_size_is_refused(tmp_path: Path, size: int) -> None:
    image = create(tmp_path / "image.qcow2", "qcow2")
    data = bytearray(image.read_bytes())
    data[24:32] = struct.pack(">Q", size)
    image.write_bytes(data)
    with pytest.raises(Exception, match=r"size zero|more than 64T|qemu-img info"):
        untrusted.check(image, "qcow2")


def test_unsupported_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ApiError, match="images of format 'ova' are not supported here, only raw, qcow2, vmdk"
    ):
        untrusted.check(tmp_path / "image.ova", "ova")
