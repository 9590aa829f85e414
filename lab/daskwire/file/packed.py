"""Decompress capture files within a limit, so that a small file cannot fill the disk."""

from __future__ import annotations

import gzip
import importlib
import os
import tempfile
import zlib
from collections.abc import Callable
from typing import IO, Any

from daskwire.errors import WireError

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
CHUNK = 1 << 14  # bytes decompressed at a time; up to this many before a damaged position are lost
MINIMUM_LIMIT, RATIO_LIMIT = 1 << 30, 100  # at most this many bytes, or this many times the packed size


def is_packed(file: IO[bytes]) -> bool:
    """Return whether a file, open at its beginning, is compressed. The position stays there."""
    head = file.read(4)
    file.seek(0)
    return head[:2] == GZIP or head == ZSTD


def unpack(file: IO[bytes], plain: IO[bytes], name: str) -> None:
    """Decompress ``file`` into ``plain``. From a truncated file the beginning is recovered.

    Raises:
        WireError: nothing can be decompressed, or the result would exceed the limit.
    """
    limit = max(MINIMUM_LIMIT, RATIO_LIMIT * os.fstat(file.fileno()).st_size)
    read = _reader(file)
    while part := read(CHUNK):
        _write(plain, part, name)
        if plain.tell() > limit:
            raise WireError(
                f"{name}: unpacks to more than {limit / 1e9:.1f} GB, {RATIO_LIMIT} x its size; "
                "if that is correct, decompress it yourself (gzip -dk, zstd -d) and read the result"
            )
    plain.flush()
    if plain.tell() == 0:
        raise WireError(f"{name}: damaged compressed file: nothing can be decompressed")


def _write(plain: IO[bytes], part: bytes, name: str) -> None:
    try:
        plain.write(part)
    except OSError as error:
        folder = tempfile.gettempdir()
        raise WireError(
            f"{name}: cannot decompress it into {folder}: {error.strerror}; set TMPDIR to use another folder"
        ) from error


def _reader(file: IO[bytes]) -> Callable[[int], bytes]:
    """Return a function that reads decompressed bytes; it returns none at the end and at damage."""
    head = file.read(4)
    file.seek(0)
    packed, damage = _zstd(file) if head == ZSTD else _gzip(file)

    def read(size: int) -> bytes:
        try:
            return bytes(packed.read(size))
        except damage:
            return b""

    return read


def _gzip(file: IO[bytes]) -> tuple[Any, tuple[type[Exception], ...]]:
    return gzip.GzipFile(fileobj=file), (EOFError, zlib.error, gzip.BadGzipFile)


def _zstd(file: IO[bytes]) -> tuple[Any, tuple[type[Exception], ...]]:
    """Return a zstd reader, and the exceptions that it raises for a damaged file."""
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
