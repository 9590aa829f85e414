"""Exchange JSON objects, one per line, with QEMU's monitor or with the agent inside a guest.

The peer may be hostile: a guest chooses every byte of its agent's answers. Whatever it sends, this module
raises one of three errors: ``TimeoutError``, ``OSError`` (no peer) or ``MalformedError``. Time, size and
depth of an answer are bounded.

Such a socket serves one client at a time. A lock per socket makes the endpoint's own threads wait for each
other.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from minipve.base import strict_json
from minipve.base.process import MachineError

MAX_ANSWER_BYTES = 32 * 2**20  # a guest agent returns up to 16 MiB of a program's output, in base64
MAX_TEXT = 1000
"""How many characters of the peer's text an error repeats."""
_CHUNK_BYTES = 2**18
_locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
T = TypeVar("T")


class MalformedError(MachineError):
    """An answer that the protocol does not allow."""


class Channel:
    """A connection. Each read and write raises TimeoutError at ``deadline`` (time.monotonic)."""

    def __init__(self, path: Path, deadline: float) -> None:
        self.deadline = deadline
        self._pending = bytearray()
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self._set_timeout()
            self._connect(path)
        except OSError:
            self.socket.close()
            raise

    def _connect(self, path: Path) -> None:
        """Connect through the folder's descriptor, because the kernel limits a socket's path to 107 bytes."""
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self.socket.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)

    def send(self, command: str, arguments: Mapping[str, Any] | None) -> None:
        message = {"execute": command, **({"arguments": arguments} if arguments else {})}
        self._set_timeout()
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Return the next object; ConnectionResetError if the peer has closed the connection."""
        line = self._line().rpartition(b"\xff")[2]  # the agent may start an answer with this byte
        try:
            message = strict_json.loads(line.decode())
        except ValueError as error:
            raise MalformedError("the answer is not JSON") from error
        if not isinstance(message, dict):
            raise MalformedError("the answer is not an object")
        return message

    def answer(self) -> dict[str, Any]:
        """Return the next object that answers a command. Events are skipped."""
        while True:
            message = self.receive()
            if "return" in message or "error" in message:
                return message

    def _line(self) -> bytes:
        searched = 0
        while (end := self._pending.find(b"\n", searched)) < 0:
            searched = len(self._pending)
            if searched > MAX_ANSWER_BYTES:
                raise MalformedError(f"the answer is larger than {MAX_ANSWER_BYTES // 2**20} MiB")
            self._set_timeout()
            data = self.socket.recv(_CHUNK_BYTES)
            if not data:
                raise ConnectionResetError
            self._pending += data
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        return line

    def _set_timeout(self) -> None:
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.socket.settimeout(left_s)


@contextlib.contextmanager
def connect(path: Path, timeout_s: float) -> Iterator[Channel]:
    """Connect to the server at ``path``, after other threads have closed their connections to it."""
    deadline = time.monotonic() + timeout_s
    if not _locks[path].acquire(timeout=timeout_s):
        raise TimeoutError
    try:
        channel = Channel(path, deadline)
        with channel.socket:
            yield channel
    finally:
        _locks[path].release()


def error_text(answer: Mapping[str, Any]) -> str | None:
    """Return the text of an answer that is an error, or None for other answers."""
    if "error" not in answer:
        return None
    return member(answer["error"], "desc", str)[:MAX_TEXT]


def member(value: Any, name: str, kind: type[T]) -> T:
    """Return the member ``name`` of an object; MalformedError unless it is present and of that type."""
    content = value.get(name) if isinstance(value, dict) else None
    if not isinstance(content, kind) or (isinstance(content, bool) and kind is not bool):
        raise MalformedError(f"the answer lacks '{name}', or it is of the wrong type")
    return content
