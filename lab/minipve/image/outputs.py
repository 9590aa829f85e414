"""Write a root file system as a disk that a BIOS boots, or as a container template."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from minipve.base import process
from minipve.base.errors import MachineError
from minipve.image import debian

# Write a root file system as a disk image that a BIOS boots: ext4 on the whole disk, with GRUB.
#
# No loop mount is needed: mke2fs fills the file system from the folder, and `install_boot_loader` does to
# the
# image file what grub-install does to a mounted disk. An ext4 file system leaves its first 1024 bytes to a
# boot loader. GRUB's core is larger, so it is an ordinary file in the file system, and the boot sector
# holds
# the list of the sectors on which that file lies (a "block list", valid as long as nobody rewrites the
# file).
#
# minipve itself boots the kernel directly (direct_boot.py). The boot loader is for other Proxmox VE nodes.

SIZE_GIB = 8
BOOT_IMAGE, CORE_IMAGE = "/boot/grub/boot.img", "/boot/grub/core.img"
# The complete list: a newer mke2fs has defaults that neither GRUB nor the guest's kernel can read.
FEATURES = "none,64bit,dir_index,dir_nlink,extent,ext_attr,extra_isize,filetype,flex_bg,huge_file,large_file"
FORMAT = ["-q", "-t", "ext4", "-O", f"{FEATURES},resize_inode,sparse_super", "-m", "0", "-L", "guest"]
SECTOR, BLOCK = 512, 4096

# GRUB's boot sector and the first sector of its core: include/grub/i386/pc/boot.h.
CODE_BYTES = 440
CORE_SECTOR = 0x5C
LIST_ITEM = struct.Struct("<QHH")  # first sector, number of sectors, segment to load them to
CORE_SEGMENT = 0x820


def write_disk(rootfs: Path, raw: Path) -> None:
    """Write a root file system (see `debian.make`) as the disk image ``raw``."""
    words = [process.which("mke2fs") or "mke2fs", *FORMAT, "-b", str(BLOCK)]
    debian.run_on(rootfs, lambda folder: [*words, "-d", folder, raw, f"{SIZE_GIB}G"])
    install_boot_loader(raw)


def install_boot_loader(raw: Path) -> None:
    """Make the GRUB that the file system contains start from the disk's first sector."""
    boot, core = _sectors(raw, BOOT_IMAGE), _sectors(raw, CORE_IMAGE)
    with raw.open("r+b") as disk:
        code, core_start = _read(disk, boot[0]), _read(disk, core[0])
        _write(disk, 0, boot_sector(code, core[0]))
        _write(disk, core[0], with_block_list(core_start, core[1:]))


def boot_sector(code: bytes, core: int) -> bytes:
    """Return GRUB's boot sector, which loads sector ``core``; its partition table is empty (pure)."""
    sector = bytearray(code[:CODE_BYTES].ljust(SECTOR - 2, b"\0") + b"\x55\xaa")
    struct.pack_into("<Q", sector, CORE_SECTOR, core)
    return bytes(sector)


def with_block_list(core_start: bytes, rest: list[int]) -> bytes:
    """Return the first sector of GRUB's core with the list of the other sectors filled in (pure).

    The list grows down from the end of the sector.

    Args:
        core_start: the first sector of the core image.
        rest: the numbers of its other sectors, in order.

    Raises:
        MachineError: the file is too fragmented for the list.
    """
    runs = list(_runs(rest))
    end = SECTOR - LIST_ITEM.size * (len(runs) + 1)  # one item of zeros ends the list
    if end < 0 or any(core_start[end : SECTOR - LIST_ITEM.size]):
        raise MachineError("GRUB's core image is too fragmented to be booted")
    sector, at, segment = bytearray(core_start), SECTOR, CORE_SEGMENT
    for start, count in runs:
        at -= LIST_ITEM.size
        LIST_ITEM.pack_into(sector, at, start, count, segment)
        segment += count * SECTOR // 16
    return bytes(sector)


def _runs(sectors: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first sector and the length of each uninterrupted run."""
    start = 0
    for index in range(1, len(sectors) + 1):
        if index == len(sectors) or sectors[index] != sectors[index - 1] + 1:
            yield sectors[start], index - start
            start = index


def _sectors(raw: Path, inside: str) -> list[int]:
    """Return the numbers of all sectors of a file in the file system, in the file's order."""
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


# Write a root file system as a container template for any Proxmox VE.
#
# It is the file system of the machines' disk without what only a machine needs, so that machines and
# containers have the same packages.

SUFFIX = ".tar.zst"
EXCLUDED = (
    "./boot/*",
    "./dev/*",
    "./usr/lib/modules/*",
    "./usr/local/sbin/nocloud",
    "./etc/udev/rules.d/99-nocloud.rules",
    "./etc/systemd/system/multi-user.target.wants/qemu-guest-agent.service",
)


def write_template(rootfs: Path, target: Path) -> None:
    """Write a root file system (see `debian.make`) as the template ``target``."""
    exclude = [f"--exclude={pattern}" for pattern in EXCLUDED]
    compressor = f"{process.which('zstd')} -T0 -3"
    words = ["tar", "--numeric-owner", "--xattrs", "--anchored", *exclude, "-I", compressor]
    debian.run_on(rootfs, lambda folder: [*words, "-cf", target, "-C", folder, "."])
