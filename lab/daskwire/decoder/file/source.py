"""Open captures as memory: files, packed or not, directories, pipes, standard input."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import mmap
import os
import re
import signal
import stat
import sys
import tempfile
import threading
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import Ints, overlapping
from daskwire.base.errors import WireError

# Map several files to one address range. Offsets in all arrays are addresses in it.


class Memory:
    """Byte regions (files) in one address range."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._views: list[memoryview] = []
        self._top = 0

    def add(self, view: memoryview, limit: int = 0) -> int:
        """Append a region that may grow to ``limit`` bytes; return the address of its first byte."""
        base = self._top
        self._bases.append(base)
        self._views.append(view)
        self._top += max(len(view), limit) + 1
        return base

    def regions(self) -> list[tuple[int, memoryview]]:
        """Return the address and the bytes of each region."""
        return list(zip(self._bases, self._views, strict=True))

    def replace(self, base: int, view: memoryview) -> None:
        """Replace a region by a longer mapping of the same file, after the file grew."""
        self._views[self._bases.index(base)] = view

    def read(self, address: int, size: int) -> memoryview:
        """Return ``size`` bytes at an address; they must lie in one region."""
        region = bisect_right(self._bases, address) - 1 if len(self._bases) > 1 else 0
        start = address - self._bases[region]
        return self._views[region][start : start + size]

    def words(self, address: Ints, count: int) -> npt.NDArray[np.uint64]:
        """Return ``count`` little-endian 64-bit words at each address, as an ``(n, count)`` array."""
        result = np.zeros((len(address), count), np.uint64)
        for base, view in zip(self._bases, self._views, strict=True):
            size = len(view) - 8 * count + 1
            inside = (address >= base) & (address < base + size)
            if size > 0 and inside.any():
                raw = overlapping(view, 0, 8 * count)[address[inside] - base]
                result[inside] = raw.view("<u8").reshape(-1, count)
        return result


# Recognise files that are not pcap or pcapng, and name the command that converts them.

EDITCAP = "convert it: editcap -F pcapng {path} {path}.pcapng"
PKTMON = "convert it: pktmon etl2pcap {path} --out {path}.pcapng"
RECORD = "record packets with tcpdump -w FILE instead of printing them"
FORMAT_BYTES = 512  # bytes that identify a format


@dataclass(frozen=True)
class Foreign:
    """A foreign format: a pattern for the first bytes of its files, its name, and what to do."""

    pattern: bytes
    name: str
    remedy: str


FORMATS = (
    Foreign(rb"snoop\0", "a snoop capture", EDITCAP),
    Foreign(rb"RTSS|GMBU", "a Microsoft Network Monitor capture", EDITCAP),
    Foreign(rb"TRSNIFF data", "a Sniffer capture", EDITCAP),
    Foreign(rb"XCP\0", "a NetXRay capture", EDITCAP),
    Foreign(rb"iptrace [12]\.0", "an AIX iptrace capture", EDITCAP),
    Foreign(rb"\x7fver", "an OmniPeek capture", EDITCAP),
    Foreign(rb"\xaa\xaa\xaa\xaa", "a 5Views capture", EDITCAP),
    Foreign(rb"\x05VNF", "a Visual Networks capture", EDITCAP),
    Foreign(rb"TR\0d", "an HP nettl trace", EDITCAP),
    Foreign(rb"\+-{9}\+-", "a K12 text capture", EDITCAP),
    Foreign(rb"\x34\xcd\xb2\xa1|\xa1\xb2\xcd\x34", "a modified pcap", EDITCAP),
    Foreign(rb"\x04\x22\x4d\x18", "an lz4 file", "decompress it: lz4 -d {path}"),
    Foreign(rb"PK\x03\x04", "a zip archive", "extract it: unzip {path}"),
    Foreign(rb"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "extract it: 7z x {path}"),
    Foreign(rb"(?s).{257}ustar", "a tar archive", "extract it: tar -xf {path}"),
    Foreign(rb"\d\d:\d\d:\d\d\.\d+ (IP|ARP|[0-9a-f]{2}:)", "the printed output of tcpdump", RECORD),
    Foreign(rb"\s*\[?\s*\{[\s\"]*_index", "the JSON output of tshark", RECORD),
    Foreign(rb"<\?xml[^>]*>\s*(<!--.*?-->\s*|<\?.*?\?>\s*)*<(pdml|psml)", "the XML output of tshark", RECORD),
)


def describe(view: memoryview, name: str) -> str:
    """Describe why a file is not a capture, and how to convert it if its format is known."""
    if not len(view):
        return "empty"
    head, path = bytes(view[:FORMAT_BYTES]), "FILE" if name == STDIN_NAME else name
    for form in FORMATS:
        if re.match(form.pattern, head):
            return f"this is {form.name}; {form.remedy.format(path=path)}"
    if path.lower().endswith(".etl"):
        return f"this is a Windows trace; {PKTMON.format(path=path)}"
    return "neither pcap nor pcapng"


# Decompress capture files within a limit, so that a small file cannot fill the disk.

UNPACK_BYTES = 1 << 14  # bytes decompressed at a time; up to this many before a damaged position are lost
MINIMUM_LIMIT, RATIO_LIMIT = 1 << 30, 100  # at most this many bytes, or this many times the packed size
MAX_DICTIONARY_BYTES = 256 * 1024**2  # xz -9 takes 64 MiB
COMPRESSION_BYTES = 6  # bytes that identify every compression
Reader = tuple[Any, tuple[type[Exception], ...]]  # a file that decompresses, and what it raises for damage


@dataclass(frozen=True)
class Compression:
    """A compression: first bytes of its files, how to read them, and the command that decompresses them."""

    magic: bytes
    open: Callable[[IO[bytes]], Reader]
    command: str


def _open_gzip(file: IO[bytes]) -> Reader:
    return gzip.GzipFile(fileobj=file), (EOFError, zlib.error, gzip.BadGzipFile)


def _open_bzip2(file: IO[bytes]) -> Reader:
    return bz2.BZ2File(file), (EOFError, OSError, ValueError)


class _XzFile:
    """An xz file that is refused if it needs much memory; `lzma.LZMAFile` takes what the file asks for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._stream = file, self._new_stream()

    @staticmethod
    def _new_stream() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DICTIONARY_BYTES)

    def read(self, size: int) -> bytes:
        """Return some bytes, of as many streams as the file has; none at the end.

        Raises:
            MemoryError: it needs more than the limit.
        """
        while True:
            if self._stream.eof:
                packed = (self._stream.unused_data or self._file.read(UNPACK_BYTES)).lstrip(b"\0")
                self._stream = self._new_stream()
            else:
                packed = self._file.read(UNPACK_BYTES) if self._stream.needs_input else b""
            if not packed and self._stream.needs_input:
                return b""
            try:
                part = self._stream.decompress(packed, size)
            except lzma.LZMAError as error:
                raise MemoryError if "limit" in str(error) else error from error
            if part:
                return part


def _open_xz(file: IO[bytes]) -> Reader:
    return _XzFile(file), (lzma.LZMAError,)


def _open_zstd(file: IO[bytes]) -> Reader:
    try:
        return importlib.import_module("pyarrow").CompressedInputStream(file, "zstd"), (OSError,)
    except ImportError:
        pass
    try:
        module = importlib.import_module("zstandard")
    except ImportError as error:
        raise WireError(
            "reading .zst files needs the package pyarrow or zstandard; or decompress the file with zstd -d"
        ) from error
    return module.ZstdDecompressor().stream_reader(file), (module.ZstdError,)


COMPRESSIONS = (
    Compression(b"\x1f\x8b", _open_gzip, "gzip -dk"),
    Compression(b"BZh", _open_bzip2, "bzip2 -dk"),
    Compression(b"\xfd7zXZ\0", _open_xz, "xz -dk"),
    Compression(b"\x28\xb5\x2f\xfd", _open_zstd, "zstd -d"),
)


def is_packed(file: IO[bytes]) -> bool:
    """Return whether a file, open at its beginning, is compressed. The position stays there."""
    return _compression(file) is not None


def _compression(file: IO[bytes]) -> Compression | None:
    head = file.read(COMPRESSION_BYTES)
    file.seek(0)
    return next((kind for kind in COMPRESSIONS if head.startswith(kind.magic)), None)


def unpack(file: IO[bytes], plain: IO[bytes], name: str) -> None:
    """Decompress ``file`` into ``plain``. From a truncated file the beginning is recovered.

    Raises:
        WireError: nothing can be decompressed, or the result would exceed the limit.
    """
    limit = max(MINIMUM_LIMIT, RATIO_LIMIT * os.fstat(file.fileno()).st_size)
    kind = _compression(file)
    assert kind is not None, name
    packed, damage = kind.open(file)
    while part := _read(packed, damage, name):
        store(plain, part, name)
        if plain.tell() > limit:
            raise WireError(
                f"{name}: decompresses to more than {limit / 1e9:.1f} GB, {RATIO_LIMIT} x its size; "
                f"if that is correct, decompress it yourself ({kind.command}) and read the result"
            )
    plain.flush()
    if plain.tell() == 0:
        raise WireError(f"{name}: damaged compressed file: nothing can be decompressed")


def _read(packed: Any, damage: tuple[type[Exception], ...], name: str) -> bytes:
    """Read some decompressed bytes; none at the end and at damage."""
    try:
        return bytes(packed.read(UNPACK_BYTES))
    except damage:
        return b""
    except MemoryError as error:
        limit = f"{MAX_DICTIONARY_BYTES // 1024**2} MiB of memory"
        raise WireError(f"{name}: to decompress it takes more than {limit}") from error


def store(temporary: IO[bytes], part: bytes, name: str) -> None:
    """Append to a temporary file.

    Raises:
        WireError: the temporary folder is full.
    """
    try:
        temporary.write(part)
    except OSError as error:
        folder = tempfile.gettempdir()
        raise WireError(
            f"{name}: cannot store it in {folder}: {error.strerror}; set TMPDIR to use another folder"
        ) from error


# Open captures as memory: files, directories, pipes, standard input.
#
# A regular file is mapped, so it costs only the pages that are accessed. A pipe is stored in an unnamed
# temporary file until its writer closes it, and a compressed capture is decompressed into one; these are
# mapped
# as well.

POPULATE_READ = 22  # madvise(2), Linux 5.14: read a range from disk in order and map all its pages
PIPE_BYTES = 1 << 20  # bytes read from a pipe at a time
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
        while part := raw.read(PIPE_BYTES):
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
