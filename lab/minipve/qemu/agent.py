"""Commands to the agent inside a guest (qemu-ga), with time-outs and Proxmox VE's texts.

The agent belongs to the guest, so nothing is believed of its answers: see channel.py.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from minipve.paths import Paths
from minipve.process import MachineError
from minipve.qemu import channel
from minipve.qemu.channel import Channel, MalformedError

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
    """Run one command (``guest-exec`` ...) and return its value; like Proxmox VE it pings first.

    Raises:
        AgentError: the agent refused the command.
        MachineError: there is no agent, or it did not answer in time, or not as the protocol has it.
    """
    try:
        with (
            understanding(vmid, command),
            channel.connect(paths.runtime(vmid, "qga"), PING_TIMEOUT_S) as agent,
        ):
            _synchronise(agent)
            agent.deadline = time.monotonic() + timeout_s
            return _ask(vmid, agent, command, arguments)
    except OSError as error:  # TimeoutError is one too
        raise MachineError("QEMU guest agent is not running") from error


@contextmanager
def understanding(vmid: int, command: str) -> Iterator[None]:
    """Name the machine and the command in the error of an answer that is malformed."""
    try:
        yield
    except MalformedError as error:
        raise MachineError(f"VM {vmid} qga command '{command}' failed - {error}") from error


def shut_down(vmid: int, paths: Paths) -> bool:
    """Send ``guest-shutdown``, which is not answered when it succeeds; False when no agent would take it."""
    try:
        with channel.connect(paths.runtime(vmid, "qga"), PING_TIMEOUT_S) as agent:
            _synchronise(agent)
            agent.send("guest-shutdown", None)
    except (OSError, MalformedError):
        return False
    return True


def _synchronise(agent: Channel) -> None:
    """Skip whatever an earlier, impatient client left behind: the answer carries our own number."""
    number = secrets.randbelow(2**31)
    agent.send("guest-sync", {"id": number})
    while agent.answer().get("return") != number:
        pass


def _ask(vmid: int, agent: Channel, command: str, arguments: Mapping[str, Any] | None) -> Any:
    agent.send(command, arguments)
    try:
        answer = agent.answer()
    except TimeoutError as error:
        raise MachineError(f"VM {vmid} qga command '{command}' failed - got timeout") from error
    if (refusal := channel.complaint(answer)) is not None:
        raise AgentError(f"Agent error: {refusal}")
    return answer["return"]


def content(value: Any, name: str) -> bytes:
    """The bytes that a member of an answer holds in base64; MalformedError when it does not."""
    text = channel.member(value, name, str)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise MalformedError(f"'{name}' of the answer is not base64") from error
