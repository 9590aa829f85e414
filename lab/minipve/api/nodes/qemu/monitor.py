"""QEMU's monitor: read-only commands, since minipve would not notice other changes, and keys."""

from __future__ import annotations

import re

from minipve.access import rights
from minipve.api.routing import VM, route
from minipve.base.errors import ApiError
from minipve.base.process import MachineError
from minipve.guests.vm import machines
from minipve.node.call import Call

_READ_ONLY = ("help", "?", "info")
_KEYS = re.compile(r"[A-Za-z0-9_-]+")


@route("POST", f"{VM}/monitor")
def monitor(call: Call) -> str:
    """Return the monitor's answer to ``help`` or ``info ...``. Errors are part of the answer, as in PVE."""
    words = call["command"].split()
    if not words:
        raise ApiError(f"unexpected command '{call['command']}'")
    if words[0] not in _READ_ONLY:
        call.permit.need_right(rights.MONITOR)
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
