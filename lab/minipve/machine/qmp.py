"""Talking to a running QEMU (QMP) and to the agent inside its guest, with time-outs and Proxmox VE's texts.

Both speak JSON, one object a line, over a unix socket that takes one client at a time; so a lock for each
machine keeps the endpoint's own threads in a queue.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.minipve.paths import Paths
from lab.minipve.process import MachineError

PING_TIMEOUT_S = 3.0
_locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)


class AgentError(MachineError):
    """The guest agent refused a command."""


class Channel:
    """One JSON-lines conversation; every read gives up at ``deadline`` (time.monotonic) with TimeoutError."""

    def __init__(self, path: Path, deadline: float) -> None:
        self.deadline = deadline
        self.pending = b""
        self.socket = socket.socket(socket.AF_UNIX)
        self._arm()
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise

    def send(self, command: str, arguments: Mapping[str, Any] | None) -> None:
        """One command."""
        message = {"execute": command, **({"arguments": arguments} if arguments else {})}
        self._arm()
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next object; ConnectionResetError at the end of the conversation."""
        while b"\n" not in self.pending:
            self._arm()
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionResetError
            self.pending += data
        line, _, self.pending = self.pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line.rpartition(b"\xff")[2])
        return message

    def answer(self) -> dict[str, Any]:
        """The next object that answers a command; events pass by."""
        while True:
            message = self.receive()
            if "return" in message or "error" in message:
                return message

    def _arm(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.socket.settimeout(left)


@contextlib.contextmanager
def _channel(path: Path, timeout_s: float) -> Iterator[Channel]:
    deadline = time.monotonic() + timeout_s
    if not _locks[path].acquire(timeout=timeout_s):
        raise TimeoutError
    try:
        channel = Channel(path, deadline)
        with channel.socket:
            yield channel
    finally:
        _locks[path].release()


class Qmp:
    """The monitor of a running machine. Each command is a conversation of its own."""

    def __init__(self, vmid: int, paths: Paths) -> None:
        self.vmid = vmid
        self.path = paths.runtime(vmid, "qmp")

    def execute(
        self, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = 5.0
    ) -> Any:
        """Run one QMP command and return its value."""
        try:
            with _channel(self.path, timeout_s) as channel:
                channel.receive()  # the greeting
                channel.send("qmp_capabilities", None)
                channel.answer()
                channel.send(command, arguments)
                answer = channel.answer()
        except TimeoutError as error:
            raise self._failed(command, "got timeout") from error
        except (ConnectionError, FileNotFoundError) as error:
            raise self._failed(command, "client closed connection") from error
        if "error" in answer:
            raise self._failed(command, answer["error"]["desc"])
        return answer["return"]

    def _failed(self, command: str, why: str) -> MachineError:
        return MachineError(f"VM {self.vmid} qmp command '{command}' failed - {why}")


def agent(
    vmid: int,
    paths: Paths,
    command: str,
    arguments: Mapping[str, Any] | None = None,
    timeout_s: float = 5.0,
) -> Any:
    """Run one guest agent command (``guest-exec`` ...); like Proxmox VE it pings first, for three seconds."""
    path = paths.runtime(vmid, "qga")
    try:
        with _channel(path, PING_TIMEOUT_S) as channel:
            _synchronise(channel)
            channel.deadline = time.monotonic() + timeout_s
            return _ask(vmid, channel, command, arguments)
    except (TimeoutError, ConnectionError, FileNotFoundError) as error:
        raise MachineError("QEMU guest agent is not running") from error


def agent_tell(vmid: int, paths: Paths, command: str) -> None:
    """Run a command that does not answer when it succeeds (``guest-shutdown``)."""
    with (
        contextlib.suppress(TimeoutError, ConnectionError),
        _channel(paths.runtime(vmid, "qga"), PING_TIMEOUT_S) as channel,
    ):
        _synchronise(channel)
        channel.send(command, None)


def agent_answers(vmid: int, paths: Paths) -> bool:
    """Whether the guest agent answers a ping."""
    try:
        agent(vmid, paths, "guest-ping")
    except MachineError:
        return False
    return True


def _synchronise(channel: Channel) -> None:
    """Skip whatever an earlier, impatient client left behind: the answer carries our own number."""
    number = secrets.randbelow(2**31)
    channel.send("guest-sync", {"id": number})
    while channel.answer().get("return") != number:
        pass


def _ask(vmid: int, channel: Channel, command: str, arguments: Mapping[str, Any] | None) -> Any:
    channel.send(command, arguments)
    try:
        answer = channel.answer()
    except TimeoutError as error:
        raise MachineError(f"VM {vmid} qga command '{command}' failed - got timeout") from error
    if "error" in answer:
        raise AgentError(f"Agent error: {answer['error']['desc']}")
    return answer["return"]
