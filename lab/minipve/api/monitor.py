"""QEMU's own monitor, as far as it only looks: of a change made there, the endpoint would not know."""

from __future__ import annotations

from minipve.api import VM, route
from minipve.errors import ApiError
from minipve.node import Call
from minipve.process import MachineError
from minipve.vm import machines

_LOOKS = ("help", "?", "info")


@route("POST", f"{VM}/monitor")
def monitor(call: Call) -> str:
    """What the monitor says to ``help`` or ``info ...``; its errors are told in the answer, as PVE does."""
    words = call["command"].split()
    if not words:
        raise ApiError(f"unexpected command '{call['command']}'")
    if words[0] not in _LOOKS:
        call.permit.need("/", ["Sys.Modify"])
        raise ApiError(f"command '{words[0]}' is not supported here, only {', '.join(_LOOKS)}")
    call.node.vms.load(call.vmid)
    try:
        return machines.monitor(call.node, call.vmid, call["command"])
    except MachineError as failed:
        return f"ERROR: {failed}\n"
