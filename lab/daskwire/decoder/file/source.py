"""Open captures as memory: files, directories, pipes, standard input.

A regular file is mapped, so it costs only the pages that are accessed. A pipe is stored in an unnamed
temporary file until its writer closes it, and a compressed capture is decompressed into one; these are mapped
as well.
"""

from __future__ import annotations

import mmap
import os
import re
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from daskwire.base.errors import WireError
from daskwire.decoder.file.packed import is_packed, store, unpack

POPULATE_READ = 22  # madvise(2), Linux 5.14: read a range from disk in order and map all its pages
CHUNK = 1 << 20  # bytes read from a pipe at a time
STDIN, STDIN_NAME = "-", "standard input"
CAPTURE_NAME = re.compile(r"\.(pcap|pcapng|cap|dmp)\d*(\.(gz|bz2|xz|zst))?$")  # digits: rotated by tcpdump -C


@dataclass(frozen=True)
class Source:
    """An opened capture: its name in messages, and its bytes."""

    name: str
    view: memoryview


def open_sources(paths: Iterable[str | os.PathLike[str] | Source]) -> list[Source]:
    """Open captures; a directory stands for the captures in it.

    Raises:
        WireError: a capture cannot be read.
    """
    return [source for path in paths for source in _open(path)]


def _open(path: str | os.PathLike[str] | Source) -> Iterator[Source]:
    if isinstance(path, Source):
        yield path
    elif str(path) == STDIN:
        yield Source(STDIN_NAME, _map_standard_input())
    elif Path(path).is_dir():
        for file in _captures_in(Path(path)):
            yield Source(str(file), map_file(file))
    else:
        yield Source(str(path), map_file(Path(path)))


def _captures_in(directory: Path) -> list[Path]:
    try:
        files = sorted(file for file in directory.iterdir() if CAPTURE_NAME.search(file.name))
    except OSError as error:
        raise WireError(f"{directory}: {error.strerror}") from error
    if not files:
        raise WireError(f"{directory}: a directory without captures (*.pcap, *.pcapng, *.cap, *.dmp)")
    return files


def _map_standard_input() -> memoryview:
    if sys.stdin.isatty():
        raise WireError("standard input is a terminal; pipe a capture into it: tcpdump -w - | daskwire -")
    return _map(sys.stdin.buffer, STDIN_NAME)


def map_file(path: Path) -> memoryview:
    """Map a file or a FIFO read-only.

    Raises:
        WireError: it cannot be opened, stored or decompressed.
    """
    try:
        with path.open("rb") as file:
            return _map(file, str(path))
    except OSError as error:
        raise WireError(f"{path}: {error.strerror or error}") from error


def _map(file: IO[bytes], name: str) -> memoryview:
    """Map an open file, after storing and decompressing it if needed."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        with tempfile.TemporaryFile() as stored:
            _store_pipe(file, stored, name)
            return _map(stored, name)
    if not is_packed(file):
        return map_open(file)
    with tempfile.TemporaryFile() as plain:
        unpack(file, plain, name)
        return map_open(plain)


def _store_pipe(pipe: IO[bytes], stored: IO[bytes], name: str) -> None:
    """Copy a pipe until its writer closes it.

    Ctrl-C also interrupts the writer (tcpdump, ssh), which then writes its last packets and closes the pipe.
    Therefore the first one does not end the copy; the second one does, for a writer that ignores it.
    """
    raw = os.fdopen(os.dup(pipe.fileno()), "rb", buffering=0)
    with closing(raw), suppress(KeyboardInterrupt), _first_interrupt_ignored():
        while part := raw.read(CHUNK):
            store(stored, part, name)
    stored.flush()
    stored.seek(0)


@contextmanager
def _first_interrupt_ignored() -> Iterator[None]:
    """Let only the second Ctrl-C raise KeyboardInterrupt.

    The first one must not raise it even if it is caught: bytes that were just read would be lost.
    """
    default, current = signal.default_int_handler, signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or current != default:
        yield
        return

    def handle(*_: object) -> None:
        signal.signal(signal.SIGINT, default)

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, default)


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
        if not hasattr(mmap.mmap, "madvise"):  # Windows
            return
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
    """Count the page faults of this process that had to wait for the disk; 0 on Windows."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
