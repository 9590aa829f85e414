"""Commands to the agent inside a guest (qemu-ga), with timeouts and Proxmox VE's error texts.

The guest controls its agent, so its answers are not trusted: see channel.py.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from minipve.base.paths import Paths
from minipve.base.process import MachineError
from minipve.guests.qemu import channel
from minipve.guests.qemu.channel import Channel, MalformedError

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
            channel.connect(paths.runtime(vmid, "qga"), PING_TIMEOUT_S) as agent,
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
        with channel.connect(paths.runtime(vmid, "qga"), PING_TIMEOUT_S) as agent:
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
    if (refusal := channel.error_text(answer)) is not None:
        raise AgentError(f"Agent error: {refusal}")
    return answer["return"]


def content(value: Any, name: str) -> bytes:
    """Decode the member ``name`` of an answer from base64; MalformedError if it is not base64."""
    text = channel.member(value, name, str)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise MalformedError(f"'{name}' of the answer is not base64") from error
