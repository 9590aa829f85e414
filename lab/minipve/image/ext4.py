"""Read files from an ext4 file system without mounting it (Linux, Documentation/filesystems/ext4).

The file system may be hostile. No link is followed, and every loop is bounded by a size that is checked
first, so the worst that a damaged file system achieves is an error.

Supported is what mke2fs writes on a whole disk: extents, linear and hashed directories, 32- and 64-bit
block numbers.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from minipve.image.nbd import MAX_READ_BYTES, Read
from minipve.process import MachineError

SUPERBLOCK, SUPERBLOCK_BYTES = 1024, 1024
MAGIC, EXTENT_MAGIC = 0xEF53, 0xF30A
ROOT_INODE = 2
_EXTENTS, _64BIT = 0x40, 0x80
# filetype, recover, extents, 64bit, flex_bg, csum_seed, largedir, casefold: none of them moves what we read.
_SUPPORTED = 0x2 | 0x4 | _EXTENTS | _64BIT | 0x200 | 0x2000 | 0x4000 | 0x20000
_USES_EXTENTS = 0x80000
_MAX_DIRECTORY_BYTES, _MAX_NODES, _MAX_DEPTH = 2**22, 512, 5


@dataclass(frozen=True)
class Inode:
    """A file or a directory; ``root`` is the root node of its extent tree."""

    mode: int
    size: int
    root: bytes


@dataclass(frozen=True)
class FileSystem:
    """A file system: how to read its disk, and its geometry from the superblock."""

    read: Read
    block_bytes: int
    inodes: int
    inodes_per_group: int
    inode_bytes: int
    descriptors_at: int
    """The offset of the first group descriptor on the disk."""
    descriptor_bytes: int

    def file(self, path: str) -> Inode:
        """Return the regular file at an absolute path; MachineError if there is none."""
        inode = self.find(path)
        if inode is None or not stat.S_ISREG(inode.mode):
            raise MachineError(f"no {path} in the file system")
        return inode

    def find(self, path: str) -> Inode | None:
        """Return what is at an absolute path, or None. Links are not followed."""
        inode = self._inode(ROOT_INODE)
        for name in path.strip("/").split("/"):
            if not stat.S_ISDIR(inode.mode):
                return None
            number = dict(self.names(inode)).get(name)
            if number is None:
                return None
            inode = self._inode(number)
        return inode

    def names(self, directory: Inode) -> Iterator[tuple[str, int]]:
        """Yield the entries of a directory: name and inode number."""
        if directory.size > _MAX_DIRECTORY_BYTES:
            raise MachineError("a directory of the file system is too large")
        data, at = b"".join(self.content(directory)), 0
        while at + 8 <= len(data):
            number, length, name_bytes = struct.unpack_from("<IHB", data, at)
            if length < 8:
                raise MachineError("a directory of the file system is damaged")
            if number:
                yield data[at + 8 : at + 8 + name_bytes].decode(errors="replace"), number
            at += length

    def content(self, inode: Inode) -> Iterator[bytes]:
        """Yield the content of a file in pieces of at most 1 MiB. Holes are zeros."""
        at = 0
        for first, blocks, start in self._extents(inode):
            begin = first * self.block_bytes
            end = min(begin + blocks * self.block_bytes, inode.size)
            if begin < at:
                raise MachineError("a file of the file system is damaged")
            yield from _zeros(min(begin, inode.size) - at)
            for offset in range(begin, end, MAX_READ_BYTES):
                length = min(MAX_READ_BYTES, end - offset)
                place = start * self.block_bytes + offset - begin
                yield self.read(place, length) if start else bytes(length)
            at = max(at, end)
        yield from _zeros(inode.size - at)

    def _inode(self, number: int) -> Inode:
        if not 0 < number <= self.inodes:
            raise MachineError("an inode of the file system is damaged")
        group, index = divmod(number - 1, self.inodes_per_group)
        descriptor = self.read(self.descriptors_at + group * self.descriptor_bytes, self.descriptor_bytes)
        table: int = struct.unpack_from("<I", descriptor, 0x8)[0]
        if self.descriptor_bytes >= 64:
            table |= struct.unpack_from("<I", descriptor, 0x28)[0] << 32
        data = self.read(table * self.block_bytes + index * self.inode_bytes, 128)
        size = struct.unpack_from("<I", data, 0x4)[0] | struct.unpack_from("<I", data, 0x6C)[0] << 32
        if not struct.unpack_from("<I", data, 0x20)[0] & _USES_EXTENTS:
            return Inode(0, 0, b"")  # a short link, a device, or an older format: not a file that we can read
        return Inode(struct.unpack_from("<H", data, 0)[0], size, data[0x28 : 0x28 + 60])

    def _extents(self, inode: Inode) -> Iterator[tuple[int, int, int]]:
        """Yield the extents of a file in order: first logical block, length, first block on the disk.

        The block on the disk is 0 for an extent of zeros. The tree is walked depth first, and the depth
        that a node states must be one less than its parent's.
        """
        nodes: list[tuple[bytes, int | None]] = [(inode.root, None)]
        visited = 0
        while nodes:
            node, expected = nodes.pop()
            magic, entries, _most, depth = struct.unpack_from("<HHHH", node)
            visited += 1
            if (
                magic != EXTENT_MAGIC
                or 12 + entries * 12 > len(node)
                or depth > _MAX_DEPTH
                or (expected is not None and depth != expected)
                or visited > _MAX_NODES
            ):
                raise MachineError("a file of the file system is damaged")
            rows = [node[12 + 12 * n : 24 + 12 * n] for n in range(entries)]
            if depth == 0:
                yield from map(_extent, rows)
            else:
                nodes += [(self._node(row), depth - 1) for row in reversed(rows)]

    def _node(self, row: bytes) -> bytes:
        _first, low, high = struct.unpack_from("<IIH", row)
        return self.read((low | high << 32) * self.block_bytes, self.block_bytes)


def _extent(row: bytes) -> tuple[int, int, int]:
    first, length, high, low = struct.unpack("<IHHI", row)
    if length > 32768:  # allocated and never written
        return first, length - 32768, 0
    return first, length, low | high << 32


def _zeros(length: int) -> Iterator[bytes]:
    for at in range(0, length, MAX_READ_BYTES):
        yield bytes(min(MAX_READ_BYTES, length - at))


def open_disk(read: Read) -> FileSystem | None:
    """Return the file system that starts at the disk's first byte; None if there is none that we support."""
    block = read(SUPERBLOCK, SUPERBLOCK_BYTES)
    inodes, first_block, log_size = (struct.unpack_from("<I", block, at)[0] for at in (0x0, 0x14, 0x18))
    per_group, features = (struct.unpack_from("<I", block, at)[0] for at in (0x28, 0x60))
    magic, inode_bytes, wide = (struct.unpack_from("<H", block, at)[0] for at in (0x38, 0x58, 0xFE))
    is_supported = magic == MAGIC and features & _EXTENTS and not features & ~_SUPPORTED
    if not is_supported or log_size > 6 or not per_group or not 128 <= inode_bytes <= 4096:
        return None
    size = 1024 << log_size
    descriptor = wide if features & _64BIT else 32
    if not 32 <= descriptor <= 1024:
        return None
    return FileSystem(read, size, inodes, per_group, inode_bytes, (first_block + 1) * size, descriptor)
