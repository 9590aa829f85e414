"""QEMU's monitor, for read-only commands: minipve would not notice changes that are made there."""

from __future__ import annotations

from minipve.api import VM, route
from minipve.errors import ApiError
from minipve.node import Call
from minipve.process import MachineError
from minipve.vm import machines

_READ_ONLY = ("help", "?", "info")


@route("POST", f"{VM}/monitor")
def monitor(call: Call) -> str:
    """Return the monitor's answer to ``help`` or ``info ...``. Errors are part of the answer, as in PVE."""
    words = call["command"].split()
    if not words:
        raise ApiError(f"unexpected command '{call['command']}'")
    if words[0] not in _READ_ONLY:
        call.permit.need("/", ["Sys.Modify"])
        raise ApiError(f"command '{words[0]}' is not supported here, only {', '.join(_READ_ONLY)}")
    call.node.vms.load(call.vmid)
    try:
        return machines.monitor(call.node, call.vmid, call["command"])
    except MachineError as failed:
        return f"ERROR: {failed}\n"
