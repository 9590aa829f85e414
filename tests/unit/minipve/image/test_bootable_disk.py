"""Load the boot loader as a BIOS and GRUB do: from sector 0 along the block list."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from minipve.base import process
from minipve.base.errors import MachineError
from minipve.image import outputs

needs_mke2fs = pytest.mark.skipif(
    shutil.which("mke2fs", path="/usr/sbin:/sbin:/usr/bin") is None, reason="mke2fs and debugfs are needed"
)
LIST_START = 500  # offset in the first sector of GRUB's core: the list at its end has one item at first


def core_image(size: int) -> bytes:
    """Something like the output of grub-mkimage: code, room for the list, its first item, compressed code."""
    return (
        os.urandom(256) + bytes(LIST_START - 256) + struct.pack("<QHH", 2, 9, 0x820) + os.urandom(size - 512)
    )


def loaded(disk: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (segment, content) of what the boot sector's code loads, starting with its own continuation."""
    (core,) = struct.unpack_from("<Q", disk, 0x5C)
    yield 0x800, disk[core * 512 : core * 512 + 512]
    for item in range(LIST_START, 0, -12):
        start, count, segment = struct.unpack_from("<QHH", disk, core * 512 + item)
        if count == 0:
            return
        yield segment, disk[start * 512 : (start + count) * 512]


@needs_mke2fs
@pytest.mark.skipif(os.geteuid() != 0, reason="for an ordinary user the root file system is a tar file")
def test_boot_sector_loads_the_whole_boot_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "SIZE_GIB", 1)
    grub, raw = tmp_path / "tree/boot/grub", tmp_path / "disk.raw"
    grub.mkdir(parents=True)
    code, core = os.urandom(512), core_image(45_001)
    (grub / "boot.img").write_bytes(code)
    (grub / "core.img").write_bytes(core)
    outputs.write_disk(tmp_path / "tree", raw)
    with raw.open("rb") as stream:
        disk = stream.read(2**26)
    assert (disk[:0x5C], disk[0x64:440]) == (code[:0x5C], code[0x64:440])
    assert disk[440:512] == bytes(70) + b"\x55\xaa", "no partitions"
    whole = b"".join(part for _, part in loaded(disk))
    assert whole[:LIST_START] == core[:LIST_START]
    assert whole[512 : len(core)] == core[512:]
    process.run(["e2fsck", "-fn", raw])


def test_fragmented_core_is_loaded_contiguously() -> None:
    first = core_image(512)
    rest = [*range(101, 108), *range(4000, 4040), 9]
    disk = bytearray(outputs.boot_sector(bytes(512), 1) + outputs.with_block_list(first, rest))
    segments = [(segment, len(part)) for segment, part in loaded(bytes(disk).ljust(5000 * 512, b"\1"))]
    assert segments == [(0x800, 512), (0x820, 7 * 512), (0x820 + 7 * 32, 40 * 512), (0x820 + 47 * 32, 512)]


@pytest.mark.parametrize("fragments", [21, 50])
def test_too_fragmented_core_is_refused(fragments: int) -> None:
    with pytest.raises(MachineError, match="too fragmented"):
        outputs.with_block_list(core_image(512), list(range(0, 2 * fragments, 2)))


@needs_mke2fs
def test_file_system_without_boot_loader_is_an_error(tmp_path: Path) -> None:
    raw = tmp_path / "disk.raw"
    process.run(["mke2fs", "-q", "-t", "ext4", raw, "8M"])
    with pytest.raises(MachineError, match=r"no /boot/grub/boot\.img in the file system of disk\.raw"):
        outputs.install_boot_loader(raw)
