"""Capture files as memory: the only place where the decoder touches the disk.

A file is mapped, not read, so what it costs is what is looked at. Compressed files are unpacked once into
an unnamed temporary file and mapped from there.
"""

from __future__ import annotations

import mmap
import os
import resource
import tempfile
from pathlib import Path
from typing import IO

from daskwire.errors import WireError
from daskwire.file.packed import is_packed, unpack

POPULATE_READ = 22  # madvise(2), Linux 5.14: maps a range in one go, reading it ahead from disk in order


def map_file(path: Path) -> memoryview:
    """The bytes of a capture file, mapped read-only; unpacked first if compressed. Raises WireError."""
    try:
        with path.open("rb") as file:
            if not is_packed(file):
                return map_open(file)
            with tempfile.TemporaryFile() as plain:
                unpack(file, plain, str(path))
                return map_open(plain)
    except OSError as error:
        raise WireError(f"{path}: {error.strerror or error}") from error


def map_open(file: IO[bytes]) -> memoryview:
    """The bytes of an open file, as many as it has now."""
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        return memoryview(b"")
    return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))


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
