"""The guest agent and QEMU's monitor."""

from __future__ import annotations

import base64
import re
import time
from typing import Any

from minipve.access import permissions
from minipve.api.routing import VM, route
from minipve.base.errors import ApiError, MachineError
from minipve.config import values
from minipve.guests.qemu import channel
from minipve.guests.qemu.channel import MalformedError
from minipve.guests.vm import machines
from minipve.node.call import Call

# The guest agent: simple queries in a table, running programs, reading and writing small files.
#
# As in PVE, a text in a request or an answer has one code point (U+0000..U+00FF) per byte.

_PLAIN = {  # command -> (verb, its name in qemu-ga)
    "ping": ("POST", "guest-ping"),
    "info": ("GET", "guest-info"),
    "get-fsinfo": ("GET", "guest-get-fsinfo"),
    "get-host-name": ("GET", "guest-get-host-name"),
    "get-osinfo": ("GET", "guest-get-osinfo"),
    "get-time": ("GET", "guest-get-time"),
    "get-timezone": ("GET", "guest-get-timezone"),
    "get-users": ("GET", "guest-get-users"),
    "get-vcpus": ("GET", "guest-get-vcpus"),
    "network-get-interfaces": ("GET", "guest-network-get-interfaces"),
    "fsfreeze-freeze": ("POST", "guest-fsfreeze-freeze"),
    "fsfreeze-status": ("POST", "guest-fsfreeze-status"),
    "fsfreeze-thaw": ("POST", "guest-fsfreeze-thaw"),
    "fstrim": ("POST", "guest-fstrim"),
    "shutdown": ("POST", "guest-shutdown"),
}
_COMMAND_S = 5.0
_FILE_TIMEOUT_S = 60.0  # the agent may send a file in small parts
_STREAMS = ("out-data", "err-data")
_READ_MAX_BYTES, _CHUNK_BYTES = 16 * 2**20, 2**20


def _ask(call: Call, command: str, timeout_s: float = _COMMAND_S, **arguments: Any) -> Any:
    return machines.agent(call.node, call.vmid, command, arguments, timeout_s)


def _ready(call: Call) -> None:
    """Raise PVE's errors unless the agent is enabled and the VM runs."""
    if not values.agent_enabled(call.node.vms.load(call.vmid).options):
        raise ApiError("No QEMU guest agent configured")
    if not machines.running_pid(call.node, call.vmid):
        raise ApiError(f"VM {call.vmid} is not running")


def _declare(name: str, verb: str, command: str) -> None:
    @route(verb, f"{VM}/agent/{name}")
    def handler(call: Call) -> dict[str, Any]:
        _ready(call)
        return {"result": _ask(call, command)}


for _name, (_verb, _command) in _PLAIN.items():
    _declare(_name, _verb, _command)


def _to_bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        place = "/usr/share/perl5/PVE/API2/Qemu/Agent.pm line 624."
        raise ApiError(f"Wide character in subroutine entry at {place}") from None


@route("POST", f"{VM}/agent/exec")
def execute(call: Call) -> dict[str, Any]:
    """Start a program in the guest. Returns its pid."""
    program, *arguments = call["command"] or [None]  # the agent validates the command
    request: dict[str, Any] = {"path": program, "arg": arguments, "capture-output": True}
    if "input-data" in call.params:
        request["input-data"] = base64.b64encode(_to_bytes(call["input-data"])).decode()
    _ready(call)
    with channel.naming_command(call.vmid, "guest-exec"):
        return {"pid": channel.member(_ask(call, "guest-exec", **request), "pid", int)}


@route("GET", f"{VM}/agent/exec-status")
def execution(call: Call) -> dict[str, Any]:
    """Return the state of a program. After its end, the agent answers only once."""
    _ready(call)
    answer = _ask(call, "guest-exec-status", pid=call["pid"])
    with channel.naming_command(call.vmid, "guest-exec-status"):
        channel.member(answer, "exited", bool)
        streams = {key: channel.content(answer, key).decode("latin-1") for key in _STREAMS if key in answer}
    decoded = {**answer, **streams}
    return {key: int(value) if isinstance(value, bool) else value for key, value in decoded.items()}


def _open(call: Call, mode: str) -> int:
    handle = _ask(call, "guest-file-open", path=call["file"], mode=mode)
    if type(handle) is not int:
        raise MachineError(
            f"VM {call.vmid} qga command 'guest-file-open' failed - the answer is not a number"
        )
    return handle


@route("POST", f"{VM}/agent/file-write")
def write(call: Call) -> None:
    """Replace a file in the guest. With ``encode=0`` the content is base64 already."""
    encoded = call["content"]
    if call.get("encode", 1):
        encoded = base64.b64encode(_to_bytes(encoded)).decode()
    _ready(call)
    handle = _open(call, "wb")
    try:
        _ask(call, "guest-file-write", handle=handle, **{"buf-b64": encoded})
    finally:
        _ask(call, "guest-file-close", handle=handle)


def _content(call: Call, handle: int, limit: int) -> tuple[bytes, bool]:
    """Return up to ``limit`` bytes of a file in the guest, and whether there is more."""
    data, more, deadline = b"", True, time.monotonic() + _FILE_TIMEOUT_S
    while more and len(data) < limit:
        count = min(_CHUNK_BYTES, limit - len(data))
        answer = _ask(call, "guest-file-read", handle=handle, count=count)
        with channel.naming_command(call.vmid, "guest-file-read"):
            part = channel.content(answer, "buf-b64")[:count]
            more = not channel.member(answer, "eof", bool)
            if more and not part:
                raise MalformedError("the answer is empty")
            if time.monotonic() > deadline:
                raise MalformedError("got timeout")
        data += part
    return data, more


@route("GET", f"{VM}/agent/file-read")
def read(call: Call) -> dict[str, Any]:
    """Return a file of the guest, up to 16 MiB."""
    _ready(call)
    handle = _open(call, "r")
    limit = min(call.get("count", _READ_MAX_BYTES), _READ_MAX_BYTES)
    try:
        data, more = _content(call, handle, limit)
    finally:
        _ask(call, "guest-file-close", handle=handle)
    plain = call.get("decode", 1)
    content = data.decode("latin-1") if plain else base64.b64encode(data).decode()
    return {"content": content, "bytes-read": len(data)} | ({"truncated": 1} if more else {})


# QEMU's monitor: read-only commands, since minipve would not notice other changes, and keys.

_READ_ONLY = ("help", "?", "info")
_KEYS = re.compile(r"[A-Za-z0-9_-]+")


@route("POST", f"{VM}/monitor")
def monitor(call: Call) -> str:
    """Return the monitor's answer to ``help`` or ``info ...``. Errors are part of the answer, as in PVE."""
    words = call["command"].split()
    if not words:
        raise ApiError(f"unexpected command '{call['command']}'")
    if words[0] not in _READ_ONLY:
        call.permit.need_right(permissions.MONITOR)
        raise ApiError(f"command '{words[0]}' is not supported here, only {', '.join(_READ_ONLY)}")
    call.node.vms.load(call.vmid)
    try:
        return machines.monitor(call.node, call.vmid, call["command"])
    except MachineError as failed:
        return f"ERROR: {failed}\n"


@route("PUT", f"{VM}/sendkey")
def send_key(call: Call) -> None:
    """Press keys in the guest, such as ``a`` or ``ctrl-alt-delete``."""
    call.permit.need_root_option("skiplock", call.params)
    call.node.vms.load(call.vmid)
    if not _KEYS.fullmatch(call["key"]):
        raise ApiError(f"invalid parameter: {call['key']}")
    if complaint := machines.monitor(call.node, call.vmid, f"sendkey {call['key']}"):
        raise ApiError(complaint)
