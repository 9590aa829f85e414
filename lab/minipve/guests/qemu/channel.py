"""Commands to QEMU's monitor and to the agent inside a guest: JSON objects, one per line."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from minipve.base import strict_json
from minipve.base.errors import MachineError
from minipve.base.paths import Paths

# Exchange JSON objects, one per line, with QEMU's monitor or with the agent inside a guest.
#
# The peer may be hostile: a guest chooses every byte of its agent's answers. Whatever it sends, this module
# raises one of three errors: `TimeoutError`, `OSError` (no peer) or `MalformedError`. Time, size and
# depth of an answer are bounded.
#
# Such a socket serves one client at a time. A lock per socket makes the endpoint's own threads wait for
# each
# other.

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


# Commands to a running QEMU (QMP), with timeouts and Proxmox VE's error texts.


class Qmp:
    """The monitor of a running machine. Each command uses a connection of its own."""

    def __init__(self, vmid: int, paths: Paths) -> None:
        self.vmid = vmid
        self.path = paths.runtime(vmid, "qmp")

    def execute(
        self, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = 5.0
    ) -> Any:
        """Run one QMP command and return its value; MachineError for any failure."""
        try:
            with connect(self.path, timeout_s) as monitor:
                monitor.receive()  # the greeting
                monitor.send("qmp_capabilities", None)
                monitor.answer()
                monitor.send(command, arguments)
                answer = monitor.answer()
            refusal = error_text(answer)
        except TimeoutError as error:
            raise self._failed(command, "got timeout") from error
        except OSError as error:
            raise self._failed(command, "client closed connection") from error
        except MalformedError as error:
            raise self._failed(command, str(error)) from error
        if refusal is not None:
            raise self._failed(command, refusal)
        return answer["return"]

    def answers(self) -> bool:
        """Whether QEMU has started and accepts commands."""
        try:
            self.execute("query-status", timeout_s=1)
        except MachineError:
            return False
        return True

    def _failed(self, command: str, reason: str) -> MachineError:
        return MachineError(f"VM {self.vmid} qmp command '{command}' failed - {reason}")


# Commands to the agent inside a guest (qemu-ga), with timeouts and Proxmox VE's error texts.
#
# The guest controls its agent, so its answers are not trusted: see channel.py.

PING_TIMEOUT_S = 3.0


class AgentError(MachineError):
    """The guest agent refused a command."""


def execute(
    vmid: int,
    paths: Paths,
    command: str,
    arguments: Mapping[str, Any] | None = None,
    timeout_s: float = 5.0,
) -> Any:
    """Run one command (``guest-exec`` ...) and return its value. Like Proxmox VE it pings the agent first.

    Raises:
        AgentError: the agent refused the command.
        MachineError: there is no agent, it did not answer in time, or its answer is malformed.
    """
    try:
        with (
            naming_command(vmid, command),
            connect(paths.runtime(vmid, "qga"), PING_TIMEOUT_S) as agent,
        ):
            _synchronise(agent)
            agent.deadline = time.monotonic() + timeout_s
            return _execute(vmid, agent, command, arguments)
    except OSError as error:  # TimeoutError is one too
        raise MachineError("QEMU guest agent is not running") from error


@contextmanager
def naming_command(vmid: int, command: str) -> Iterator[None]:
    """Turn a MalformedError of the block into a MachineError that names the machine and the command."""
    try:
        yield
    except MalformedError as error:
        raise MachineError(f"VM {vmid} qga command '{command}' failed - {error}") from error


def shut_down(vmid: int, paths: Paths) -> bool:
    """Send ``guest-shutdown``; False if there is no agent. A successful shutdown sends no answer."""
    try:
        with connect(paths.runtime(vmid, "qga"), PING_TIMEOUT_S) as agent:
            _synchronise(agent)
            agent.send("guest-shutdown", None)
    except (OSError, MalformedError):
        return False
    return True


def _synchronise(agent: Channel) -> None:
    """Skip answers to earlier commands that timed out: ``guest-sync`` returns the number that we send."""
    number = secrets.randbelow(2**31)
    agent.send("guest-sync", {"id": number})
    while agent.answer().get("return") != number:
        pass


def _execute(vmid: int, agent: Channel, command: str, arguments: Mapping[str, Any] | None) -> Any:
    agent.send(command, arguments)
    try:
        answer = agent.answer()
    except TimeoutError as error:
        raise MachineError(f"VM {vmid} qga command '{command}' failed - got timeout") from error
    if (refusal := error_text(answer)) is not None:
        raise AgentError(f"Agent error: {refusal}")
    return answer["return"]


def content(value: Any, name: str) -> bytes:
    """Decode the member ``name`` of an answer from base64; MalformedError if it is not base64."""
    text = member(value, name, str)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise MalformedError(f"'{name}' of the answer is not base64") from error
