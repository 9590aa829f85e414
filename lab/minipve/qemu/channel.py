"""A conversation in JSON, one object a line, with QEMU's monitor or with the agent inside a guest.

The other end may be hostile: a guest chooses every byte of its agent's answers. So all that can go wrong here
is one of three errors, whatever is sent: ``TimeoutError``, ``OSError`` (nobody is there) or
``MalformedError``. The time and the size of an answer are bounded, and so is its depth.

A socket takes one client at a time; a lock for each keeps the endpoint's own threads in a queue.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from minipve import strict_json
from minipve.process import MachineError

MAX_ANSWER_BYTES = 32 * 2**20  # a guest agent keeps up to 16 MiB of a program's output, in base64
MAX_TEXT = 1000
"""Characters of the other end's text that are repeated in an error."""
_CHUNK_BYTES = 2**18
_locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
T = TypeVar("T")


class MalformedError(MachineError):
    """An answer that the protocol does not allow."""


class Channel:
    """One conversation; every read gives up at ``deadline`` (time.monotonic) with TimeoutError."""

    def __init__(self, path: Path, deadline: float) -> None:
        self.deadline = deadline
        self._pending = bytearray()
        self.socket = socket.socket(socket.AF_UNIX)
        self._arm()
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise

    def send(self, command: str, arguments: Mapping[str, Any] | None) -> None:
        """Send one command."""
        message = {"execute": command, **({"arguments": arguments} if arguments else {})}
        self._arm()
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Return the next object; ConnectionResetError at the end of the conversation."""
        line = self._line().rpartition(b"\xff")[2]  # the agent marks the start of an answer with it
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
            self._arm()
            data = self.socket.recv(_CHUNK_BYTES)
            if not data:
                raise ConnectionResetError
            self._pending += data
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        return line

    def _arm(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.socket.settimeout(left)


@contextlib.contextmanager
def connect(path: Path, timeout_s: float) -> Iterator[Channel]:
    """Open a conversation with the server at ``path`` once every other thread has finished its own."""
    deadline = time.monotonic() + timeout_s
    if not _locks[path].acquire(timeout=timeout_s):
        raise TimeoutError
    try:
        channel = Channel(path, deadline)
        with channel.socket:
            yield channel
    finally:
        _locks[path].release()


def complaint(answer: Mapping[str, Any]) -> str | None:
    """The text of an answer that is an error, None for any other."""
    if "error" not in answer:
        return None
    return member(answer["error"], "desc", str)[:MAX_TEXT]


def member(value: Any, name: str, kind: type[T]) -> T:
    """The member ``name`` of an object; MalformedError unless it is there and of that type."""
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise MalformedError(f"the answer lacks '{name}', or it is of the wrong type")
    return found
