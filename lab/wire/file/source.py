"""Capture files as memory: the only place where the decoder touches the disk.

A file is mapped, not read, so what it costs is what is looked at. Compressed files are unpacked once into
an unnamed temporary file and mapped from there.
"""

from __future__ import annotations

import gzip
import importlib
import mmap
import os
import resource
import tempfile
import zlib
from pathlib import Path
from typing import IO, Any

from lab.wire.errors import WireError

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
