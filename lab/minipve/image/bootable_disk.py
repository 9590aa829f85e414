"""A tree of files as a disk that boots: one whole-disk ext4 file system, with GRUB where a BIOS looks for it.

Written without loop mounts: mke2fs fills the file system from the tree, and what grub-install does on a
mounted disk is done to the file. A file system leaves its first 1024 bytes to a boot loader, too few for
GRUB's core: that is a file like others, and the boot sector is told on which sectors it lies (a "block
list", good as long as nobody writes that file). The local endpoint needs none of this, see disks.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from minipve import process
from minipve.image import debian
from minipve.process import MachineError

SIZE_GIB = 8
BOOT_IMAGE, CORE_IMAGE = "/boot/grub/boot.img", "/boot/grub/core.img"
# All of them named: a newer mke2fs has defaults that neither GRUB nor the guest's kernel can read.
FEATURES = "none,64bit,dir_index,dir_nlink,extent,ext_attr,extra_isize,filetype,flex_bg,huge_file,large_file"
FORMAT = ["-q", "-t", "ext4", "-O", f"{FEATURES},resize_inode,sparse_super", "-m", "0", "-L", "guest"]
SECTOR, BLOCK = 512, 4096

# GRUB's boot sector and the first sector of its core: include/grub/i386/pc/boot.h.
CODE_BYTES = 440
CORE_SECTOR = 0x5C
LIST_ITEM = struct.Struct("<QHH")  # first sector, how many, the segment that they are loaded to
CORE_SEGMENT = 0x820


def write(tree: Path, raw: Path) -> None:
    """Write ``tree``, as root a directory, else a tar file, as the disk image ``raw``."""
    words = [process.which("mke2fs") or "mke2fs", *FORMAT, "-b", str(BLOCK)]
    debian.run_on(tree, lambda folder: [*words, "-d", folder, raw, f"{SIZE_GIB}G"])
    install_boot_loader(raw)


def install_boot_loader(raw: Path) -> None:
    """Let a BIOS start the GRUB that lies in the file system."""
    boot, core = _sectors(raw, BOOT_IMAGE), _sectors(raw, CORE_IMAGE)
    with raw.open("r+b") as disk:
        code, first = _read(disk, boot[0]), _read(disk, core[0])
        _write(disk, 0, boot_sector(code, core[0]))
        _write(disk, core[0], with_block_list(first, core[1:]))


def boot_sector(code: bytes, core: int) -> bytes:
    """GRUB's boot sector, which loads sector ``core``; its partition table is empty (pure)."""
    sector = bytearray(code[:CODE_BYTES].ljust(SECTOR - 2, b"\0") + b"\x55\xaa")
    struct.pack_into("<Q", sector, CORE_SECTOR, core)
    return bytes(sector)


def with_block_list(first: bytes, rest: list[int]) -> bytes:
    """The first sector of GRUB's core, with a list of the ``rest`` that grows down from its end (pure)."""
    runs = list(_runs(rest))
    end = SECTOR - LIST_ITEM.size * (len(runs) + 1)  # one item of zeros ends the list
    if end < 0 or any(first[end : SECTOR - LIST_ITEM.size]):
        raise MachineError("GRUB's core lies on too many pieces of the disk")
    sector, at, segment = bytearray(first), SECTOR, CORE_SEGMENT
    for start, count in runs:
        at -= LIST_ITEM.size
        LIST_ITEM.pack_into(sector, at, start, count, segment)
        segment += count * SECTOR // 16
    return bytes(sector)


def _runs(sectors: list[int]) -> Iterator[tuple[int, int]]:
    """(first, how many) of each uninterrupted run."""
    start = 0
    for index in range(1, len(sectors) + 1):
        if index == len(sectors) or sectors[index] != sectors[index - 1] + 1:
            yield sectors[start], index - start
            start = index


def _sectors(raw: Path, inside: str) -> list[int]:
    """All sectors of a file in a file system, in the file's order."""
    blocks = process.run(["debugfs", "-R", f"blocks {inside}", raw]).split()
    if not blocks:
        raise MachineError(f"no {inside} in the file system of {raw.name}")
    per_block = BLOCK // SECTOR
    return [int(block) * per_block + part for block in blocks for part in range(per_block)]


def _read(disk: BinaryIO, sector: int) -> bytes:
    disk.seek(sector * SECTOR)
    return disk.read(SECTOR)


def _write(disk: BinaryIO, sector: int, content: bytes) -> None:
    disk.seek(sector * SECTOR)
    disk.write(content)
