"""Map capture files into memory.

A mapped file costs only the pages that are accessed. Compressed files are decompressed once into an unnamed
temporary file, which is mapped.
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

POPULATE_READ = 22  # madvise(2), Linux 5.14: read a range from disk in order and map all its pages


def map_file(path: Path) -> memoryview:
    """Map a capture file read-only, after decompression if needed.

    Raises:
        WireError: the file cannot be opened or decompressed.
    """
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
    """Map an open file at its current size."""
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        return memoryview(b"")
    return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))


class Advisor:
    """Advise the kernel how a mapped file will be read, block by block.

    Once a block had to be read from disk, the kernel is asked to prefetch the next block while this one is
    parsed. For a file in the page cache this would only cost time.
    """

    def __init__(self, view: memoryview) -> None:
        self._region = view.obj
        self._size = len(view)
        self._cold = False

    def __call__(self, start: int, stop: int, sparse: bool) -> None:
        """Announce that ``start`` to ``stop`` is read now: in order, or (``sparse``) only small parts."""
        if sparse:
            self._advise(mmap.MADV_RANDOM, start, stop)
            return
        faults = _major_faults()
        self._advise(POPULATE_READ, start, stop)
        self._cold |= _major_faults() > faults
        if self._cold:
            self._advise(mmap.MADV_WILLNEED, stop, 2 * stop - start)

    def _advise(self, advice: int, start: int, stop: int) -> None:
        start, stop = start - start % mmap.PAGESIZE, min(stop, self._size)
        if not isinstance(self._region, mmap.mmap) or start >= stop:
            return
        try:
            self._region.madvise(advice, start, stop - start)
        except (OSError, ValueError):  # an older kernel, or a file that was truncated: slower, still correct
            return


def _major_faults() -> int:
    """Count the page faults of this process that had to wait for the disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
