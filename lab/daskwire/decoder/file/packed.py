"""Decompress capture files within a limit, so that a small file cannot fill the disk."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from daskwire.base.errors import WireError

CHUNK = 1 << 14  # bytes decompressed at a time; up to this many before a damaged position are lost
MINIMUM_LIMIT, RATIO_LIMIT = 1 << 30, 100  # at most this many bytes, or this many times the packed size
MAX_DICTIONARY_BYTES = 256 * 1024**2  # xz -9 takes 64 MiB
HEAD = 6  # bytes that identify every compression
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
                packed = (self._stream.unused_data or self._file.read(CHUNK)).lstrip(b"\0")
                self._stream = self._new_stream()
            else:
                packed = self._file.read(CHUNK) if self._stream.needs_input else b""
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
    head = file.read(HEAD)
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
        return bytes(packed.read(CHUNK))
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
