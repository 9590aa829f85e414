"""Capture files as memory: the only place where the decoder touches the disk.

A file is mapped, not read, so what it costs is what is looked at. Compressed files are unpacked once into
an unnamed temporary file and mapped from there. Several files form one address space (``Memory``): offsets
in all tables are addresses in it.
"""

from __future__ import annotations

import gzip
import importlib
import mmap
import os
import resource
import tempfile
import zlib
from bisect import bisect_right
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from lab.wire.errors import WireError
from lab.wire.lockstep import Ints, overlapping

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
UNPACKED = 1 << 14  # bytes unpacked at a time: so much may be missing before the place of a damage
POPULATE_READ = 22  # madvise(2), Linux 5.14: maps a range in one go, reading it ahead from disk in order


def map_file(path: Path) -> memoryview:
    """The bytes of a capture file, mapped read-only; unpacked first if compressed. Raises WireError."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(0)
            if head[:2] == GZIP:
                return _unpack(gzip.GzipFile(fileobj=file), path, (EOFError, zlib.error, gzip.BadGzipFile))
            if head == ZSTD:
                return _unpack(*_zstd(file, path))
            return _map(file)
    except OSError as error:
        raise WireError(f"{path}: {error.strerror or error}") from error


def _map(file: IO[bytes]) -> memoryview:
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        return memoryview(b"")
    return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))


def _unpack(packed: Any, path: Path, damage: tuple[type[Exception], ...]) -> memoryview:
    """Unpack what can be unpacked: a compressed capture that is cut off still gives its beginning."""
    with tempfile.TemporaryFile() as plain:
        try:
            while part := packed.read(UNPACKED):
                plain.write(part)
        except damage as error:
            if plain.tell() == 0:
                raise WireError(f"{path}: damaged compressed file ({error})") from error
        plain.flush()
        return _map(plain)


def _zstd(file: IO[bytes], path: Path) -> tuple[Any, Path, tuple[type[Exception], ...]]:
    """A reader of zstd, and how it says that the file is damaged."""
    try:
        return importlib.import_module("pyarrow").CompressedInputStream(file, "zstd"), path, (OSError,)
    except ImportError:
        pass
    try:
        module = importlib.import_module("zstandard")
    except ImportError as error:
        raise WireError(
            "reading .zst needs the package pyarrow or zstandard; or unpack it with zstd -d"
        ) from error
    return module.ZstdDecompressor().stream_reader(file), path, (module.ZstdError,)


class Advisor:
    """Tells the kernel how a mapped file will be read, block after block.

    Once a block had to be fetched from the disk, the disk is set to fetch the next one while this one is
    worked on; of a file that is in memory already that would only cost time.
    """

    def __init__(self, view: memoryview) -> None:
        self._region = view.obj
        self._size = len(view)
        self._cold = False

    def __call__(self, start: int, stop: int, sparse: bool) -> None:
        """``start`` to ``stop`` comes now: all of it in order, or (``sparse``) a little here and there."""
        if sparse:
            self._say(mmap.MADV_RANDOM, start, stop)
            return
        fetched = _fetched()
        self._say(POPULATE_READ, start, stop)
        self._cold |= _fetched() > fetched
        if self._cold:
            self._say(mmap.MADV_WILLNEED, stop, 2 * stop - start)

    def _say(self, advice: int, start: int, stop: int) -> None:
        start, stop = start - start % mmap.PAGESIZE, min(stop, self._size)
        if not isinstance(self._region, mmap.mmap) or start >= stop:
            return
        try:
            self._region.madvise(advice, start, stop - start)
        except (OSError, ValueError):  # an older kernel, or a file cut while it is read: slower, not wrong
            return


def _fetched() -> int:
    """Pages that this process had to wait for so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


class Memory:
    """Several byte regions behind one range of addresses."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._views: list[memoryview] = []
        self._top = 0

    def add(self, view: memoryview, room: int = 0) -> int:
        """Append a region that may grow to ``room`` bytes; gives the address of its first byte."""
        base = self._top
        self._bases.append(base)
        self._views.append(view)
        self._top += max(len(view), room) + 1
        return base

    def replace(self, base: int, view: memoryview) -> None:
        """A longer mapping of a region (its file grew)."""
        self._views[self._bases.index(base)] = view

    def read(self, address: int, size: int) -> memoryview:
        """The bytes at an address; they never cross regions."""
        which = bisect_right(self._bases, address) - 1 if len(self._bases) > 1 else 0
        start = address - self._bases[which]
        return self._views[which][start : start + size]

    def words(self, address: Ints, count: int) -> npt.NDArray[np.uint64]:
        """``count`` little-endian 64-bit words at each address, an ``(n, count)`` array; all must lie in
        the file.
        """
        result = np.zeros((len(address), count), np.uint64)
        for base, view in zip(self._bases, self._views, strict=True):
            size = len(view) - 8 * count + 1
            mine = (address >= base) & (address < base + size)
            if size > 0 and mine.any():
                found = overlapping(view, 0, 8 * count)[address[mine] - base]
                result[mine] = found.view("<u8").reshape(-1, count)
        return result
