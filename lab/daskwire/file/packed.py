"""Compressed capture files, unpacked with a bound: a small file must not fill the disk."""

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
AT_A_TIME = 1 << 14  # bytes unpacked at a time: so much may be missing before the place of a damage
ALWAYS, TIMES = 1 << 30, 100  # unpacked are at most so many bytes, or so many times the file's own


def is_packed(file: IO[bytes]) -> bool:
    """Whether an open file is compressed; it stands at its beginning then."""
    head = file.read(4)
    file.seek(0)
    return head[:2] == GZIP or head == ZSTD


def unpack(file: IO[bytes], plain: IO[bytes], name: str) -> None:
    """Unpack what can be unpacked: a compressed capture that is cut off still gives its beginning.

    Raises WireError when nothing can, or when it would be more than the bound.
    """
    most = max(ALWAYS, TIMES * os.fstat(file.fileno()).st_size)
    read = _reader(file)
    while part := read(AT_A_TIME):
        _write(plain, part, name)
        if plain.tell() > most:
            raise WireError(
                f"{name}: unpacks to more than {most / 1e9:.1f} GB, {TIMES} times its size; "
                "if that is right, unpack it by hand (gzip -dk, zstd -d) and name the result"
            )
    plain.flush()
    if plain.tell() == 0:
        raise WireError(f"{name}: damaged compressed file, nothing of it can be unpacked")


def _write(plain: IO[bytes], part: bytes, name: str) -> None:
    try:
        plain.write(part)
    except OSError as error:
        folder = tempfile.gettempdir()
        raise WireError(
            f"{name}: unpacking it into {folder}: {error.strerror}; TMPDIR can name another folder"
        ) from error


def _reader(file: IO[bytes]) -> Callable[[int], bytes]:
    """Gives some bytes at a time, none at the end or where the file is damaged."""
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
    """A reader of zstd, and how it says that the file is damaged."""
    try:
        return importlib.import_module("pyarrow").CompressedInputStream(file, "zstd"), (OSError,)
    except ImportError:
        pass
    try:
        module = importlib.import_module("zstandard")
    except ImportError as error:
        raise WireError(
            "reading .zst needs the package pyarrow or zstandard; or unpack it with zstd -d"
        ) from error
    return module.ZstdDecompressor().stream_reader(file), (module.ZstdError,)
