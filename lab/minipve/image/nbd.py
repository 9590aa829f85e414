"""Read a disk image of any format as its guest would: raw images directly, others through ``qemu-nbd``.

The protocol is NBD with "fixed newstyle" negotiation and one command, read (NetworkBlockDevice/nbd,
doc/proto.md).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from minipve import process
from minipve.process import MachineError

Read = Callable[[int, int], bytes]
"""``(offset, length) -> bytes`` of a disk. Beyond its end it reads zeros."""

MAX_READ_BYTES = 2**20
_START_S, _ANSWER_S = 10.0, 30.0
_HELLO = struct.Struct(">8s8sH")
_EXPORT = struct.Struct(">IQII")  # the client's flags, then the option: magic, number, length of its data
_SIZE = struct.Struct(">QH")
_REQUEST, _REPLY = struct.Struct(">IHHQQI"), struct.Struct(">IIQ")
_FIXED_NEWSTYLE, _NO_ZEROES, _EXPORT_NAME = 1, 2, 1
_OPTION_MAGIC = struct.unpack(">Q", b"IHAVEOPT")[0]
_REQUEST_MAGIC, _REPLY_MAGIC = 0x25609513, 0x67446698


@contextlib.contextmanager
def open_image(image: Path, fmt: str) -> Iterator[Read]:
    """Open an image and its backing images for reading. A machine may be using it.

    Raises:
        MachineError: QEMU cannot read the image.
        OSError: the file cannot be read.
    """
    if fmt == "raw":
        with image.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size

            def read(offset: int, length: int) -> bytes:
                present = _length_within(size, offset, length)
                return (os.pread(stream.fileno(), present, offset) if present else b"").ljust(length, b"\0")

            yield read
        return
    with _server(image, fmt) as connection:
        yield _Client(connection).read


@contextlib.contextmanager
def _server(image: Path, fmt: str) -> Iterator[socket.socket]:
    """Start a ``qemu-nbd`` for this image and yield a connection to it; end it afterwards."""
    process.need("qemu-nbd")
    with tempfile.TemporaryDirectory(prefix="minipve-nbd-") as folder:
        path = Path(folder) / "socket"
        name = str(image).replace(",", ",,")
        options = f"driver={fmt},force-share=on,file.driver=file,file.filename={name}"
        words = [
            str(process.which("qemu-nbd")),
            "--read-only",
            "--socket",
            str(path),
            "--image-opts",
            options,
        ]
        with (
            subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            ) as child,
            socket.socket(socket.AF_UNIX) as connection,
        ):
            try:
                _connect(connection, path, child)
                connection.settimeout(_ANSWER_S)
                yield connection
            except _LostError as lost:
                raise MachineError(f"the image cannot be read: {_last_words(child)}") from lost
            finally:
                child.kill()


class _LostError(Exception):
    """The server does not run or does not answer."""


def _connect(connection: socket.socket, path: Path, child: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            connection.connect(str(path))
            return
        if child.poll() is not None or time.monotonic() > deadline:
            raise _LostError
        time.sleep(0.005)


def _last_words(child: subprocess.Popen[str]) -> str:
    """Return the last line that ``qemu-nbd`` printed before it ended."""
    try:
        _, printed = child.communicate(timeout=1)
    except subprocess.TimeoutExpired:
        return "qemu-nbd does not answer"
    return (printed.strip().splitlines() or ["qemu-nbd ended"])[-1]


def _length_within(size: int, offset: int, length: int) -> int:
    """Return how many of the requested bytes are on a disk of this size."""
    return max(0, min(length, size - offset))


class _Client:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        magic, option, _flags = _HELLO.unpack(self._receive(_HELLO.size))
        if (magic, option) != (b"NBDMAGIC", b"IHAVEOPT"):
            raise MachineError("the image cannot be read: qemu-nbd uses another protocol")
        self._send(_EXPORT.pack(_FIXED_NEWSTYLE | _NO_ZEROES, _OPTION_MAGIC, _EXPORT_NAME, 0))
        self._size, _flags = _SIZE.unpack(self._receive(_SIZE.size))

    def read(self, offset: int, length: int) -> bytes:
        present = _length_within(self._size, offset, length)
        data = bytearray()
        while len(data) < present:
            part = min(MAX_READ_BYTES, present - len(data))
            self._send(_REQUEST.pack(_REQUEST_MAGIC, 0, 0, 0, offset + len(data), part))
            magic, error, _handle = _REPLY.unpack(self._receive(_REPLY.size))
            if magic != _REPLY_MAGIC or error:
                raise MachineError(f"the image cannot be read at {offset}: error {error}")
            data += self._receive(part)
        return bytes(data).ljust(length, b"\0")

    def _send(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise _LostError from error

    def _receive(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            try:
                part = self._connection.recv(length - len(data))
            except OSError as error:
                raise _LostError from error
            if not part:
                raise _LostError
            data += part
        return bytes(data)
